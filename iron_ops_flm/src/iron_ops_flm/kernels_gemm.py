"""The kernels of `flm.GEMM`'s array, with what each promises. Tiles are held micro tile by micro tile."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from iron_core import BFP16EBS8, In, InOut, Kernel, KernelContract, ObjectType, Out, Param, Tolerance, bfloat16
from iron_core.array.micro_tiles import MICRO_TILES, MM_STACK, RATES, blocked, product, unblocked
from iron_core.array.numbers import BITS, EXP, LOG2_HIGH, LOG2_LOW, array_of, exp_over
from iron_ops_flm.epilogue import Finish

#: C++: a float32 of its bits, its bits, and float32 to bfloat16.
_NUMBERS = (
    BITS
    + """// To the nearest even number, or down; a NaN stays one.
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
)

#: Where e^x leaves float32.
LEAST, MOST = -87.3, 88.722839

_FINISH = (
    _NUMBERS
    + array_of("EXP", EXP)
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
    half = k >> 1
    y = exp_over(held, k) * np.ldexp(f32(1), half) * np.ldexp(f32(1), k - half)
    return np.where(np.isnan(x), x, np.where(x > f32(MOST), f32(np.inf), np.where(x < f32(LEAST), f32(0), y)))


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
    def mode(self) -> str:
        """What multiplies: see `MICRO_TILES`."""
        return "bfp16" if self.emulated else "bfloat16"

    @property
    def micro(self) -> tuple[int, int, int]:
        return MICRO_TILES[self.arch, self.mode]

    def mm(self) -> Kernel:
        """c += a b, in float32."""
        m, k, n = self.rows, self.depth, self.columns
        (r, s, t), (rate, source) = self.micro, RATES[self.arch, self.mode]

        def reference(a: Any, b: Any, c: Any) -> np.ndarray:
            right = unblocked(b, (n, k), t, s).T if self.by_columns else unblocked(b, (k, n), s, t)
            return np.asarray(c, np.float32).reshape(-1) + blocked(product(unblocked(a, (m, k), r, s), right, self.mode), r, t)

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
