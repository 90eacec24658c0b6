"""The kernels of `LayerNorm`: mlir-aie's, which has an epsilon of its own, and one in C++ that takes any."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import In, Kernel, KernelContract, Loop, ObjectType, Out, Param, Tolerance, bfloat16
from iron_core.array.numbers import BFLOAT16, float32

#: The epsilon that mlir-aie's kernel is compiled with.
EPSILON = 1e-5
#: How far off a kernel is near zero, where what is left of a row cancels.
NEAR_ZERO = 1e-5
#: The mean of squares from which on a row of the kernel in C++ comes out as zeros.
LARGEST = 2.0**127

_LAYER_NORM = (
    BFLOAT16
    + """
extern "C" void KERNEL(const uint16_t *x, uint16_t *y, int32_t n) {
  float sum = 0, square = 0, over = 0;
  for (int32_t i = 0; i < n; i++)
    sum += widen(x[i]);
  float mean = sum / (float)n;
  for (int32_t i = 0; i < n; i++) {
    float centred = widen(x[i]) - mean;
    square += centred * centred;
  }
  square = square / (float)n + EPSILON;
  // One over its root: from the bits, then by Newton's iteration.
  if (square < number(0x7F000000)) {
    over = number(0x5F3759DF - (bits(square) >> 1));
    for (int32_t k = 0; k < 4; k++)
      over = over * (1.5f - 0.5f * square * over * over);
  }
  for (int32_t i = 0; i < n; i++)
    y[i] = narrow((widen(x[i]) - mean) * over);
}
"""
)


def layer_norm(cols: int, epsilon: float) -> Kernel:
    """y = (x - mean(x)) / sqrt(var(x) + epsilon) of a row of `cols` bfloat16, both in float32. mlir-aie's comes within 1 ulp on AIE2
    (measured), or 1e-5 where that is more."""
    row = ObjectType.of(cols, bfloat16)
    types, own = (row, row, np.int32), epsilon != EPSILON

    def theirs(x: Any, n: int) -> np.ndarray:
        wide = float32(x)
        centred = wide - wide.mean()
        return centred / np.sqrt((centred * centred).mean() + np.float32(EPSILON))

    def ours(x: Any, n: int) -> np.ndarray:
        """As the C++ has it: sums from the first number on."""
        wide, one, half = float32(x).reshape(-1), np.float32(1.5), np.float32(0.5)
        centred = wide - np.add.accumulate(wide)[-1] / np.float32(n)
        with np.errstate(over="ignore", invalid="ignore"):
            square = np.add.accumulate(centred * centred)[-1:] / np.float32(n) + np.float32(epsilon)
            if not square < LARGEST:
                return np.zeros_like(centred)
        over: Any = (np.uint32(0x5F3759DF) - (square.view(np.uint32) >> 1)).view(np.float32)
        for _ in range(4):
            over = over * (one - half * square * over * over)
        return centred * over

    contract = KernelContract(
        roles=(In, Out, Param),
        bindings=((2, cols),),
        reference=ours if own else theirs,
        tolerance=Tolerance(terms=cols, ulps=1, absolute=NEAR_ZERO),
        ops=6 * cols,
        # The mean, the squares of what is left, the root, and the row once more.
        loops=(
            Loop(times=-(-cols // 16), reads=32, chain=1),
            Loop(times=-(-cols // 16), reads=32, chain=3),
            Loop(times=1, chain=8),
            Loop(times=-(-cols // 16), reads=32, writes=32, chain=2),
        ),
    )
    if own:
        return Kernel.inline("layer_norm", _LAYER_NORM, types, contract, dict(EPSILON=f"{float(np.float32(epsilon))!r}f"))
    return Kernel.factory("norm.layer_norm", types, contract, tile_size=cols)
