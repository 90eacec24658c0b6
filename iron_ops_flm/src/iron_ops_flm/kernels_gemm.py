"""The kernels of `flm.GEMM`'s array, with what each promises, and the order in which cores hold their tiles.

A core multiplies micro tiles: r x s of A by s x t of B. A tile is held as whole micro tiles, one after another.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from iron_core import BFP16EBS8, In, InOut, Kernel, KernelContract, ObjectType, Out, Param, Tolerance, bfloat16
from iron_core.declare.formats.bfp16 import bfp16
from iron_ops_flm.epilogue import Finish

#: Stack of the product, in bytes.
MM_STACK = 0xD00
#: (r, s, t) of the products, by architecture and whether bfloat16 is made bfp16.
MICRO_TILES = {("AIE2", False): (4, 8, 4), ("AIE2P", False): (4, 8, 8), ("AIE2P", True): (8, 8, 8)}
#: Multiplications a core does per cycle in this kernel, and where that was seen.
RATES = {
    ("AIE2", False): (95.4, "3.14 TOPS of 16 cores at 1.028 GHz, published bfloat16 best of npu1"),
    ("AIE2P", False): (13.9, "1.6 TFLOPS of 32 cores at 1.8 GHz, mlir-aie's 4096^3 in tiles of 64 x 88 x 64, native bfloat16"),
    ("AIE2P", True): (41.7, "4.8 TFLOPS of 32 cores at 1.8 GHz, mlir-aie's 8192 x 4224 x 4096, bfloat16 made bfp16"),
}

#: C++: bfloat16 to float32 and back, and a float32's bits.
_NUMBERS = """
#include <stdint.h>
#include <string.h>
static inline float number(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}
static inline uint32_t bits(float x) {
  uint32_t held;
  memcpy(&held, &x, sizeof held);
  return held;
}
// To the nearest even number, or down; a NaN stays one.
static inline uint16_t narrow(float x) {
  uint32_t held = bits(x);
  if (x != x)
    return held >> 16 | 0x40;
#if DOWN
  return (held + (held >> 31) * 0xFFFF) >> 16;
#else
  return (held + 0x7FFF + (held >> 16 & 1)) >> 16;
#endif
}
"""

#: log 2 in two parts, the first short enough that a small whole number times it is exact; of e^r, |r| up to log(2) / 2, from the
#: lowest power up; and where e^x leaves float32.
LOG2_HIGH, LOG2_LOW = 0.693359375, -2.12194440e-4
EXP = (5.0000001201e-1, 1.6666665459e-1, 4.1665795894e-2, 8.3334519073e-3, 1.3981999507e-3, 1.9875691500e-4)
LEAST, MOST = -87.3, 88.722839

_FINISH = (
    _NUMBERS
    + f"static const float EXP[] = {{{', '.join(f'{float(np.float32(n))!r}f' for n in EXP)}}};\n"
    + f"static const float LOG2_HIGH = {LOG2_HIGH!r}f, LOG2_LOW = {LOG2_LOW!r}f, LEAST = {LEAST!r}f, MOST = {MOST!r}f;\n"
    + """
static inline float rounded(float x) { return number((uint32_t)narrow(x) << 16); }
static inline float power(float x) {
  if (x != x)
    return x;
  if (x > MOST)
    return number(0x7F800000);
  if (x < LEAST)
    return 0;
  float times = x * 1.44269504f;
  int32_t k = (int32_t)(times < 0 ? times - 0.5f : times + 0.5f);
  float r = x - (float)k * LOG2_HIGH;
  r = r - (float)k * LOG2_LOW;
  float e = EXP[5];
  for (int i = 4; i >= 0; i--)
    e = e * r + EXP[i];
  e = e * (r * r) + r + 1;
  int32_t half = k >> 1;
  return e * number((uint32_t)(half + 127) << 23) * number((uint32_t)(k - half + 127) << 23);
}
static inline float sigmoid(float x) { return 1 / (1 + power(-x)); }

extern "C" void KERNEL(const float *sums, uint16_t *out, int32_t mode, int32_t low, int32_t high) {
  float least = number((uint32_t)low << 16), most = number((uint32_t)high << 16);
  for (int32_t i = 0; i < COUNT; i++) {
    float x = sums[i];
#if !STEPS
    if (mode == 1) {
      x = x / (1 + power(-(1.702f * x)));
    } else
#endif
    {
      x = rounded(x);
      if (mode == 2)
        x = x / (1 + power(-x));
      else if (mode == 3)
        x = sigmoid(x);
      else if (mode == 1)
        x = x * rounded(sigmoid(rounded(1.702f * x)));
    }
    x = rounded(x);
    x = x < least ? least : x > most ? most : x;
    out[i] = bits(x) >> 16;
  }
}
"""
)

_EXPAND = (
    "#define DOWN 0\n"
    + _NUMBERS
    + """
extern "C" void KERNEL(const uint8_t *blocks, uint16_t *out) {
  for (int32_t block = 0; block < BLOCKS; block++) {
    const uint8_t *from = blocks + 9 * block;
    int32_t e = (int32_t)from[0] - 133, half = e / 2;  // of a byte's lowest bit
    float high = number((uint32_t)(half + 127) << 23), low = number((uint32_t)(e - half + 127) << 23);
    for (int32_t i = 0; i < 8; i++)
      out[8 * block + i] = narrow((float)(int8_t)from[1 + i] * high * low);
  }
}
"""
)


def exp(x: np.ndarray) -> np.ndarray:
    """e^x in float32, as the C++ has it."""
    f32 = np.float32
    held = np.clip(np.where(np.isnan(x), f32(0), x), f32(LEAST), f32(MOST))
    times = held * f32(1.44269504)
    k = np.where(times < 0, times - f32(0.5), times + f32(0.5)).astype(np.int32)
    r = held - k.astype(f32) * f32(LOG2_HIGH)
    r = r - k.astype(f32) * f32(LOG2_LOW)
    e = np.full_like(r, f32(EXP[-1]))
    for factor in EXP[-2::-1]:
        e = e * r + f32(factor)
    e = e * (r * r) + r + f32(1)
    half = k >> 1
    y = e * np.ldexp(f32(1), half) * np.ldexp(f32(1), k - half)
    return np.where(np.isnan(x), x, np.where(x > f32(MOST), f32(np.inf), np.where(x < f32(LEAST), f32(0), y)))


def held(matrix: Any, rows: int, columns: int) -> np.ndarray:
    """A matrix, flat, micro tile of rows x columns by micro tile."""
    high, wide = matrix.shape
    return np.ascontiguousarray(matrix.reshape(high // rows, rows, wide // columns, columns).swapaxes(1, 2)).reshape(-1)


def seen(flat: Any, shape: tuple[int, int], rows: int, columns: int) -> np.ndarray:
    """The matrix of this shape that `held` made flat."""
    high, wide = shape
    return np.asarray(flat).reshape(high // rows, wide // columns, rows, columns).swapaxes(1, 2).reshape(shape)


def product(a: Any, b: Any, emulated: bool) -> np.ndarray:
    """a @ b in float32, emulated: of bfp16. What tile references and `composed()` share: its bits depend on shapes and layout."""
    if emulated:
        a, b = bfp16(a, 1), bfp16(b, 0)
    return np.matmul(np.ascontiguousarray(a, np.float32), np.ascontiguousarray(b, np.float32))


@attrs.frozen
class ProductKernels:
    """The kernels of a core: rows x depth of A by depth x columns of B, added to float32.

    emulated: bfloat16 is made bfp16. by_columns: B's micro tiles are those of its transpose.
    """

    arch: str
    rows: int
    depth: int
    columns: int
    emulated: bool
    by_columns: bool

    @property
    def micro(self) -> tuple[int, int, int]:
        return MICRO_TILES[self.arch, self.emulated]

    def mm(self) -> Kernel:
        """c += a b, in float32."""
        m, k, n = self.rows, self.depth, self.columns
        (r, s, t), (rate, source) = self.micro, RATES[self.arch, self.emulated]

        def reference(a: Any, b: Any, c: Any) -> np.ndarray:
            right = seen(b, (n, k), t, s).T if self.by_columns else seen(b, (k, n), s, t)
            return np.asarray(c, np.float32).reshape(-1) + held(product(seen(a, (m, k), r, s), right, self.emulated), r, t)

        contract = KernelContract(
            roles=(In, In, InOut),
            reference=reference,
            tolerance=Tolerance(terms=k),
            ops=2 * m * k * n,
            cycles=m * k * n / rate,
            cycles_source=source,
            stack=MM_STACK,
        )
        types = (ObjectType.of(m * k, bfloat16), ObjectType.of(k * n, bfloat16), ObjectType.of(m * n, np.float32))
        return Kernel.factory(
            "linalg.mm",
            types,
            contract,
            dim_m=m,
            dim_k=k,
            dim_n=n,
            input_dtype=bfloat16,
            output_dtype=np.dtype(np.float32),
            b_col_maj=self.by_columns,
            c_col_maj=False,
            emulate_bf16_mmul_with_bfp16=self.emulated,
        )

    def expand(self) -> Kernel:
        """A tile of B in bfp16ebs8 to bfloat16, which holds the same numbers."""
        numbers = self.depth * self.columns
        contract = KernelContract(
            roles=(In, Out), reference=lambda x: BFP16EBS8.dequantize(np.reshape(x, -1), (numbers,)), tolerance=Tolerance(exact=True)
        )
        types = (ObjectType.of(BFP16EBS8.row_bytes(numbers), np.uint8), ObjectType.of(numbers, bfloat16))
        return Kernel.inline("expand_bfp16", _EXPAND, types, contract, dict(BLOCKS=numbers // 8))


def zero(elements: int) -> Kernel:
    """That many float32, all 0."""
    contract = KernelContract(roles=(Out,), reference=lambda: np.zeros(elements, np.float32), tolerance=Tolerance(exact=True))
    return Kernel.factory("zero", (ObjectType.of(elements, np.float32),), contract, tile_size=elements, dtype=np.dtype(np.float32))


def finish(elements: int, rounding: str, gelu: str) -> Kernel:
    """Sums to bfloat16: an `Epilogue` by its number, then a clamp by the bits of two bfloat16."""

    def reference(sums: Any, mode: int, low: int, high: int) -> np.ndarray:
        least, most = (float(np.uint16(bits).view(bfloat16)) for bits in (low, high))
        return Finish(mode, rounding, gelu, least, most).of(np.asarray(sums, np.float32), exp)

    contract = KernelContract(roles=(In, Out, Param, Param, Param), reference=reference, elementwise=True, ops=20 * elements)
    types = (ObjectType.of(elements, np.float32), ObjectType.of(elements, bfloat16), *(np.int32,) * 3)
    defines = dict(COUNT=elements, DOWN=int(rounding == "floor"), STEPS=int(gelu == "bf16_steps"))
    return Kernel.inline("finish", _FINISH, types, contract, defines)
