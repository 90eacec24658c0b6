"""The kernels of the matrix product's array, with what each promises.

Tiles are held micro tile by micro tile (see `iron_core.array.micro_tiles`); memory tiles re-order on the way in and out. A B
that is column major is held as the blocks of its transpose, and so is a C.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from iron_core import In, InOut, Kernel, KernelContract, ObjectType, Out, Param, Tolerance, bfloat16
from iron_core.array.micro_tiles import MICRO_TILES, MM_PROGRAM, MM_STACK, RATES, Dims, block_dims, blocked, product, row_dims, unblocked
from iron_core.array.numbers import MADE
from iron_core.declare.formats.bfp16 import GROUP, eights
from iron_ops_aie.products.scales import rounded

#: A kernel works on this many micro tiles of A's rows and of B's columns at a time; two of each where nothing is said.
UNROLL = {("AIE2", "bfloat16"): (4, 4), ("AIE2", "int8"): (4, 2)}
#: As RATES, where C is kept in float32.
FLOAT32_RATES = {
    ("AIE2P", "bfp16"): (84.5, "8.508 TFLOPS of 32 cores at 1.8 GHz, mlir-air's 2048^3 in tiles of 64 x 32 x 128 to float32"),
}

_K_TAIL = """
#include <stdint.h>

// A tile seen as OUTER x BLOCKS x MID x STEP x INNER numbers, STEP * BLOCKS along K: zero where K >= n.
extern "C" void KERNEL(NUMBER *tile, int32_t n) {
  for (int32_t block = n / STEP; block < BLOCKS; block++) {
    int32_t first = n - block * STEP;
    if (first < 0)
      first = 0;
    for (int32_t outer = 0; outer < OUTER; outer++)
      for (int32_t mid = 0; mid < MID; mid++) {
        NUMBER *run = tile + ((outer * BLOCKS + block) * MID + mid) * STEP * INNER;
        for (int32_t i = first * INNER; i < STEP * INNER; i++)
          run[i] = 0;
      }
  }
}
"""

_SCALE_COPY = (
    MADE
    + """extern "C" void KERNEL(const int32_t *sums, made *out, int32_t scale) {
  for (int32_t i = 0; i < N; i++)
    out[i] = make((float)sums[i] * number((uint32_t)scale));
}
"""
)


def multiples(arch: str, mode: str) -> tuple[int, int, int]:
    """What a tile's rows, depth and columns are whole multiples of."""
    (r, s, t), (rows, columns) = MICRO_TILES[arch, mode], UNROLL.get((arch, mode), (2, 2))
    return r * rows, s, t * columns


def bfp16_error(matrix: Any, axis: int) -> np.ndarray:
    """How far each number of a matrix may be from what bfp16 has for it: a unit of its block, where the largest is cut."""
    wide = np.moveaxis(np.abs(np.asarray(matrix, np.float64)), axis, -1)
    largest = eights(wide).max(-1)
    _, exponent = np.frexp(largest)
    unit = np.where(largest > 0, np.ldexp(1.0, exponent - 7), 0.0).repeat(GROUP, -1)
    return np.moveaxis(unit[..., : wide.shape[-1]], -1, axis)


@attrs.frozen
class MatrixKernels:
    """The kernels for tiles of m x k by k x n on an architecture, and the re-orderings they need.

    accumulator: dtype of the C that is added to. mode: what multiplies (see `MICRO_TILES`).
    """

    arch: str
    m: int
    k: int
    n: int
    b_col_maj: bool = False
    c_col_maj: bool = False
    accumulator: Any = bfloat16
    mode: str = "bfloat16"

    @property
    def micro(self) -> tuple[int, int, int]:
        return MICRO_TILES[self.arch, self.mode]

    @property
    def dtype(self) -> Any:
        """Of A and of B."""
        return np.dtype(np.int8) if self.mode == "int8" else bfloat16

    # -- how tiles are held ------------------------------------------------------------------------

    def held_a(self) -> Dims:
        """The order in which a row-major tile of A is sent to a core."""
        r, s, _ = self.micro
        return block_dims((self.m, self.k), r, s)

    def held_b(self) -> Dims:
        """The order in which a tile of B, as it lies in memory, is sent to a core."""
        _, s, t = self.micro
        return block_dims((self.n, self.k), t, s) if self.b_col_maj else block_dims((self.k, self.n), s, t)

    def given_c(self) -> Dims:
        """The order in which a core's tile of C is sent on, to lie as it does in memory."""
        r, _, t = self.micro
        return row_dims((self.n, self.m), t, r) if self.c_col_maj else row_dims((self.m, self.n), r, t)

    def _a(self, flat: Any) -> np.ndarray:
        r, s, _ = self.micro
        return unblocked(flat, (self.m, self.k), r, s)

    def _b(self, flat: Any) -> np.ndarray:
        _, s, t = self.micro
        if self.b_col_maj:
            return unblocked(flat, (self.n, self.k), t, s).T
        return unblocked(flat, (self.k, self.n), s, t)

    def _c(self, matrix: np.ndarray) -> np.ndarray:
        r, _, t = self.micro
        return blocked(matrix.T, t, r) if self.c_col_maj else blocked(matrix, r, t)

    # -- kernels -----------------------------------------------------------------------------------

    def mm(self) -> Kernel:
        """c += a b, added in float32 and stored as the accumulator's dtype."""
        m, k, n = self.m, self.k, self.n
        wide = FLOAT32_RATES if np.dtype(self.accumulator) == np.float32 else RATES
        rate, source = wide.get((self.arch, self.mode)) or RATES[self.arch, self.mode]

        def reference(a: Any, b: Any, c: Any) -> np.ndarray:
            more = self._c(product(self._a(a), self._b(b), self.mode))
            return np.asarray(c, more.dtype).reshape(-1) + more

        contract = KernelContract(
            roles=(In, In, InOut),
            reference=reference,
            tolerance=Tolerance(exact=True) if self.mode == "int8" else Tolerance(terms=k),
            ops=2 * m * k * n,
            cycles=m * k * n / rate,
            cycles_source=source,
            program=MM_PROGRAM,
            stack=MM_STACK,
        )
        types = (ObjectType.of(m * k, self.dtype), ObjectType.of(k * n, self.dtype), ObjectType.of(m * n, self.accumulator))
        return Kernel.factory(
            "linalg.mm",
            types,
            contract,
            dim_m=m,
            dim_k=k,
            dim_n=n,
            input_dtype=self.dtype,
            output_dtype=self.accumulator,
            b_col_maj=self.b_col_maj,
            c_col_maj=self.c_col_maj,
            emulate_bf16_mmul_with_bfp16=self.mode == "bfp16",
        )

    def zero(self) -> Kernel:
        """c = 0."""
        return zero(self.m * self.n, self.accumulator)

    def a_tail(self) -> Kernel:
        """Zero the columns of a tile of A from number n on."""
        r, s, _ = self.micro
        return self._tail("a_tail", outer=self.m // r, blocks=self.k // s, mid=r, step=s, inner=1)

    def b_tail(self) -> Kernel:
        """Zero the rows of a tile of B from number n on."""
        _, s, t = self.micro
        if self.b_col_maj:
            return self._tail("b_tail", outer=self.n // t, blocks=self.k // s, mid=t, step=s, inner=1)
        return self._tail("b_tail", outer=1, blocks=self.k // s, mid=self.n // t, step=s, inner=t)

    def _tail(self, name: str, *, outer: int, blocks: int, mid: int, step: int, inner: int) -> Kernel:
        elements = outer * blocks * mid * step * inner

        def reference(tile: Any, n: int) -> np.ndarray:
            kept = np.array(tile, np.float32).reshape(outer, blocks, mid, step, inner)
            at = np.arange(blocks)[:, None] * step + np.arange(step)
            kept[np.broadcast_to((at >= n)[None, :, None, :, None], kept.shape)] = 0
            return kept.reshape(-1)

        contract = KernelContract(roles=(InOut, Param), reference=reference, tolerance=Tolerance(exact=True))
        defines = dict(NUMBER=f"uint{8 * self.dtype.itemsize}_t", OUTER=outer, BLOCKS=blocks, MID=mid, STEP=step, INNER=inner)
        return Kernel.inline(name, _K_TAIL, (ObjectType.of(elements, self.dtype), np.int32), contract, defines)


def zero(elements: int, dtype: Any) -> Kernel:
    """That many numbers, all 0."""
    contract = KernelContract(roles=(Out,), reference=lambda: np.zeros(elements, np.float32), tolerance=Tolerance(exact=True))
    return Kernel.factory("zero", (ObjectType.of(elements, dtype),), contract, tile_size=elements, dtype=dtype)


def scale_copy(elements: int, dtype: Any) -> Kernel:
    """int32 to a float, times the float32 whose bits are given."""
    contract = KernelContract(
        roles=(In, Out, Param),
        reference=lambda x, bits: rounded(x, np.int32(bits).view(np.float32)),
        elementwise=True,
        ops=2 * elements,
    )
    types = (ObjectType.of(elements, np.int32), ObjectType.of(elements, dtype), np.int32)
    defines = dict(N=elements, NARROW=int(dtype == bfloat16))
    return Kernel.inline("scale_copy", _SCALE_COPY, types, contract, defines)


def convert_copy(elements: int) -> Kernel:
    """float32 to bfloat16, ties to even."""
    contract = KernelContract(
        roles=(In, Out, Param),
        bindings=((2, elements),),
        reference=lambda x, n: np.asarray(x, np.float32),
        tolerance=Tolerance(exact=True),
        elementwise=True,
        rounding="conv_even",
    )
    types = (ObjectType.of(elements, np.float32), ObjectType.of(elements, bfloat16), np.int32)
    return Kernel.factory("datamovement.convert_copy", types, contract, tile_size=elements)
