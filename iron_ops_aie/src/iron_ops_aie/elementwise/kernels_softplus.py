"""The kernel of `Softplus`'s array: log(1 + e^x) in float32, written in C++."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import In, Kernel, KernelContract, ObjectType, Out, Param, bfloat16
from iron_core.array.numbers import BFLOAT16, POWER, float32, power
from iron_ops_aie.elementwise.kernels_log import LOGARITHM, logarithm

#: C++: `softplus` of a float32, as below. Behind BITS.
SOFTPLUS = (
    POWER
    + LOGARITHM
    + """
// log(1 + t) of t = e^-|x|, the sum's own rounding made good; added to what is over zero.
static inline float softplus(float x) {
  if (x != x)
    return x;
  float t = power(x < 0 ? x : -x), sum = 1 + t;
  return (logarithm(sum) + (t - (sum - 1)) / sum) + (x < 0 ? 0 : x);
}
"""
)

_SOFTPLUS = (
    BFLOAT16
    + SOFTPLUS
    + """
extern "C" void KERNEL(const uint16_t *x, uint16_t *y, int32_t n) {
  for (int32_t i = 0; i < n; i++)
    y[i] = narrow(softplus(widen(x[i])));
}
"""
)


def softplus(x: Any) -> np.ndarray:
    """Of float32, as the C++ has it."""
    x = np.asarray(x, np.float32)
    lost = np.isnan(x)
    held = np.where(lost, np.float32(0), x)
    one, t = np.float32(1), power(-np.abs(held))
    total = one + t
    made = (logarithm(total) + (t - (total - one)) / total) + np.maximum(held, np.float32(0))
    return np.where(lost, x, made)


def softplus_line(tile: int) -> Kernel:
    """y = log(1 + e^x), a line of bfloat16 rounded once."""
    line = ObjectType.of(tile, bfloat16)
    contract = KernelContract(
        roles=(In, Out, Param),
        bindings=((2, tile),),
        reference=lambda x, n: softplus(float32(x)),
        elementwise=True,
        ops=50 * tile,
    )
    return Kernel.inline("softplus", _SOFTPLUS, (line, line, np.int32), contract)
