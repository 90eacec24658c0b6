"""What attention's array does to a block of scores before the softmax: kernels that carry their own C++.

Scores lie row by row and are still to be scaled: what is added to scaled scores, or caps them, comes divided by the scale.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import In, InOut, Kernel, KernelContract, ObjectType, Param, Tolerance, bfloat16
from iron_core.array.numbers import BFLOAT16
from iron_ops_aie.elementwise.kernels_soft_cap import soft_cap

#: A hidden score: in bfloat16, and so low that its weight is 0 beside any score that counts.
HIDDEN = -(2.0**100)

_HIDE = """
#include <stdint.h>

// Row i stands at key i * STEP + ahead of this block, which holds `keys` keys. What it does not see becomes -2^100.
extern "C" void KERNEL(uint16_t *scores, int32_t ahead, int32_t keys) {
  for (int32_t i = 0; i < B; i++) {
    int32_t at = i * STEP + ahead;
    int32_t first = 0, last = keys < B ? keys : B;
#if WINDOW
    first = at - WINDOW > 0 ? at - WINDOW : 0;
#endif
#if REACH >= 0
    last = at + REACH + 1 < last ? at + REACH + 1 : last;
#endif
    for (int32_t j = 0; j < B; j++)
      if (j < first || j >= last)
        scores[i * B + j] = 0xF180;
  }
}
"""

_ADD_BIAS = (
    BFLOAT16
    + """
// The first n scores.
extern "C" void KERNEL(uint16_t *scores, const uint16_t *bias, int32_t n, float factor) {
  for (int32_t i = 0; i < n; i++)
    scores[i] = narrow(widen(scores[i]) + widen(bias[i]) * factor);
}
"""
)


def hide(b: int, causal: bool, window: int | None, step: int) -> Kernel:
    """Of b rows of b scores, those of keys that a row does not see become `HIDDEN`.

    Row i stands at key i * step + ahead of the block, of whose keys the first `keys` are there. causal, window: as `MHA`.
    """
    reach = 0 if causal else window

    def reference(scores: Any, ahead: int, keys: int) -> np.ndarray:
        at = np.arange(b)[:, None] * step + ahead
        key = np.arange(b)[None]
        seen = np.broadcast_to(key < keys, (b, b))
        if reach is not None:
            seen = seen & (key <= at + reach)
        if window is not None:
            seen = seen & (key >= at - window)
        return np.where(seen, np.asarray(scores, np.float32).reshape(b, b), np.float32(HIDDEN))

    contract = KernelContract(roles=(InOut, Param, Param), reference=reference, tolerance=Tolerance(exact=True))
    defines = dict(B=b, STEP=step, WINDOW=window or 0, REACH=-1 if reach is None else reach)
    return Kernel.inline("hide", _HIDE, (ObjectType.of((b, b), bfloat16), np.int32, np.int32), contract, defines)


def add_bias(b: int, rows: int, scale: float) -> Kernel:
    """scores + bias / scale, of the first rows of b rows of b scores."""
    factor = float(np.float32(1 / scale))

    def reference(scores: Any, bias: Any, n: int, factor: float) -> np.ndarray:
        out = np.array(scores, np.float32).reshape(b, b)
        with np.errstate(over="ignore", invalid="ignore"):
            out[:rows] += np.asarray(bias, np.float32).reshape(rows, b) * np.float32(factor)
        return out

    contract = KernelContract(roles=(InOut, In, Param, Param), bindings=((2, rows * b), (3, factor)), reference=reference, ops=2 * rows * b)
    types = (ObjectType.of((b, b), bfloat16), ObjectType.of((rows, b), bfloat16), np.int32, np.float32)
    return Kernel.inline("add_bias", _ADD_BIAS, types, contract)


def cap_scores(b: int, cap: float, scale: float) -> Kernel:
    """Scores bent to within cap / scale: those that are scaled, to within the cap."""
    return soft_cap(b * b, cap / scale)
