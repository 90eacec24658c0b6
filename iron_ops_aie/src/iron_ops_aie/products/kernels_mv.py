"""The kernels of matrix-vector arrays, with what each promises."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import In, InOut, Kernel, KernelContract, Loop, ObjectType, Out, Param, Tolerance, bfloat16
from iron_core.array.numbers import BFLOAT16, MADE
from iron_ops_aie.products.scales import rounded

#: Widths (in bfloat16) that linalg.mv can be compiled for, widest first; a row must hold at least two vectors.
VECTORS = (64, 32, 16)

# 32-bit words: a line is a whole number of them, and no vector header is needed.
_COPY = """
#include <stdint.h>
extern "C" void KERNEL(const uint32_t *__restrict from, uint32_t *__restrict to) {
  for (int i = 0; i < WORDS; i++)
    to[i] = from[i];
}
"""


# Two bfloat16 multiply to a float32 without rounding; VECTOR sums go side by side and are added by halves.
_MV_FLOAT32 = (
    BFLOAT16
    + """
extern "C" void KERNEL(int32_t rows, int32_t at, const uint16_t *__restrict a, const uint16_t *__restrict b,
                       float *__restrict c) {
  for (int32_t row = 0; row < rows && at + row < OUT; row++) {
    float sums[VECTOR] = {};
    for (int32_t k = 0; k < K; k += VECTOR)
      for (int32_t lane = 0; lane < VECTOR; lane++)
        sums[lane] += widen(a[row * K + k + lane]) * widen(b[k + lane]);
    for (int32_t half = VECTOR / 2; half; half /= 2)
      for (int32_t lane = 0; lane < half; lane++)
        sums[lane] += sums[lane + half];
    c[at + row] = sums[0];
  }
}
"""
)

# Sums of integers do not depend on the order; VECTOR of them go side by side.
_MV_INT8 = (
    MADE
    + """
extern "C" void KERNEL(int32_t rows, int32_t at, const int8_t *__restrict a, const int8_t *__restrict b,
                       RESULT *__restrict c SCALE) {
  for (int32_t row = 0; row < rows && at + row < OUT; row++) {
    int32_t sums[VECTOR] = {};
    for (int32_t k = 0; k < K; k += VECTOR)
      for (int32_t lane = 0; lane < VECTOR; lane++)
        sums[lane] += (int32_t)a[row * K + k + lane] * (int32_t)b[k + lane];
    int32_t sum = 0;
    for (int32_t lane = 0; lane < VECTOR; lane++)
      sum += sums[lane];
    c[at + row] = MAKE;
  }
}
"""
)
_SUMS = _MV_INT8.replace("RESULT", "int32_t").replace(" SCALE", "").replace("MAKE", "sum")
_SCALED = (
    _MV_INT8.replace("RESULT", "made").replace(" SCALE", ", int32_t scale").replace("MAKE", "make((float)sum * number((uint32_t)scale))")
)


def row_loops(rows: int, columns: int, vector: int, nbytes: int) -> tuple[Loop, ...]:
    """Of rows times a line, numbers of `nbytes` bytes: vectors whose products are added side by side, and their sum by halves.

    mlir-aie's loop overlaps its turns: one core of IRON's narrowest output head keeps up with a stream of 14 GB/s.
    """
    turns = Loop(times=rows * columns // vector, reads=2 * vector * nbytes, issued=-(-vector // 16), overlapped=True)
    return turns, Loop(times=rows, reads=1, writes=2, chain=(vector - 1).bit_length())


def products(rows: Any, line: Any) -> np.ndarray:
    """rows (n, K) times line (K,), in float32: what one call of `mv` accumulates. A row's does not depend on the others."""
    wide = np.ascontiguousarray(rows, dtype=np.float32)
    # One product a row: a library adds up several rows at once in another order.
    return np.matmul(wide[:, None], np.ascontiguousarray(line, dtype=np.float32)[:, None])[:, 0, 0]


def lane_products(rows: Any, line: Any, vector: int) -> np.ndarray:
    """rows (n, K) times line (K,), in float32: `vector` sums side by side, added by halves, as `mv_float32` does."""
    wide = np.ascontiguousarray(rows, dtype=np.float32) * np.asarray(line, dtype=np.float32)
    # Over an outer axis numpy adds one after another.
    sums = np.add.reduce(np.ascontiguousarray(wide.reshape(len(wide), -1, vector).swapaxes(0, 1)), axis=0)
    while sums.shape[1] > 1:
        half = sums.shape[1] // 2
        sums = sums[:, :half] + sums[:, half:]
    return np.asarray(sums[:, 0])


def mv(rows: int, columns: int, out: int, vector: int) -> Kernel:
    """c[at : at + rows] = a @ b for a (rows, columns), b (columns,), c (out,) in bfloat16: float32 sums, rounded once.

    Arguments rows and at come first; rows is bound. The rest of c stays as it is.
    """

    def reference(m: int, at: int, a: Any, b: Any, c: Any) -> np.ndarray:
        result = np.asarray(c).astype(np.float32)
        result[at : at + m] = products(np.reshape(a, (rows, columns))[:m], np.reshape(b, -1))
        return result

    contract = KernelContract(
        roles=(Param, Param, In, In, InOut),
        bindings=((0, rows),),
        reference=reference,
        tolerance=Tolerance(terms=columns),
        ops=2 * rows * columns,
        loops=row_loops(rows, columns, vector, 2),
    )
    return Kernel.factory(
        "linalg.mv",
        (
            np.int32,
            np.int32,
            ObjectType.of((rows, columns), bfloat16),
            ObjectType.of(columns, bfloat16),
            ObjectType.of(out, bfloat16),
        ),
        contract,
        dim_m=rows,
        dim_k=columns,
        input_dtype=bfloat16,
        output_dtype=bfloat16,
        vec_size=vector,
        output_rows=out,
    )


def mv_float32(rows: int, columns: int, out: int, vector: int) -> Kernel:
    """`mv` with a float32 c: nothing is rounded to bfloat16. Rows past the end of c are left out."""

    def reference(m: int, at: int, a: Any, b: Any, c: Any) -> np.ndarray:
        result = np.array(c, np.float32)
        made = lane_products(np.reshape(a, (rows, columns))[:m], np.reshape(b, -1), vector)
        result[at : at + m] = made[: max(0, out - at)]
        return result

    contract = KernelContract(
        roles=(Param, Param, In, In, InOut),
        bindings=((0, rows),),
        reference=reference,
        tolerance=Tolerance(terms=columns),
        ops=2 * rows * columns,
        loops=row_loops(rows, columns, vector, 2),
    )
    types = (
        np.int32,
        np.int32,
        ObjectType.of((rows, columns), bfloat16),
        ObjectType.of(columns, bfloat16),
        ObjectType.of(out, np.float32),
    )
    return Kernel.inline("mv_float32", _MV_FLOAT32, types, contract, dict(K=columns, OUT=out, VECTOR=vector))


def integer_products(rows: Any, line: Any) -> np.ndarray:
    """rows (n, K) times line (K,), exact integers in float64, which holds them."""
    return np.asarray(rows, np.float64) @ np.asarray(line, np.float64)


def mv_int8(rows: int, columns: int, out: int, vector: int, made: Any) -> Kernel:
    """`mv` of int8: c in int32; or, a float, sums times the float32 whose bits come last. Rows past the end of c are left out."""
    scaled = made != np.int32

    def reference(m: int, at: int, a: Any, b: Any, c: Any, *bits: int) -> np.ndarray:
        sums = integer_products(np.reshape(a, (rows, columns))[:m], np.reshape(b, -1))
        if scaled:
            sums = rounded(sums, np.int32(bits[0]).view(np.float32))
        result = np.array(c, sums.dtype)
        result[at : at + m] = sums[: max(0, out - at)]
        return result

    contract = KernelContract(
        roles=(Param, Param, In, In, InOut, *([Param] if scaled else [])),
        bindings=((0, rows),),
        reference=reference,
        tolerance=Tolerance(exact=True),
        ops=2 * rows * columns,
        loops=row_loops(rows, columns, vector, 1),
    )
    types = (
        np.int32,
        np.int32,
        ObjectType.of((rows, columns), np.int8),
        ObjectType.of(columns, np.int8),
        ObjectType.of(out, made),
        *([np.int32] if scaled else []),
    )
    defines = dict(K=columns, OUT=out, VECTOR=vector, NARROW=int(made == bfloat16))
    return Kernel.inline("mv_scaled" if scaled else "mv_int32", _SCALED if scaled else _SUMS, types, contract, defines)


def head(rows: int, columns: int, dtype: Any = bfloat16) -> Kernel:
    """line = the first row of a tile (rows, columns) of this dtype: what keeps a line that came on a stream of tiles."""
    contract = KernelContract(
        roles=(In, Out),
        reference=lambda tile: np.reshape(tile, -1)[:columns].astype(np.float32),
        tolerance=Tolerance(exact=True),
        ops=0,
    )
    types = (ObjectType.of((rows, columns), dtype), ObjectType.of(columns, dtype))
    return Kernel.inline("head", _COPY, types, contract, dict(WORDS=columns * np.dtype(dtype).itemsize // 4))
