"""The kernel of `Log`'s array: a logarithm in float32, written in C++.

A number is 2^e m with m from sqrt(1/2) to sqrt(2), and log m is f q(f) with f = m - 1 and q a polynomial, so what is near
one keeps its digits. The polynomial leaves 7.5e-9 of the result.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import In, Kernel, KernelContract, ObjectType, Out, Param, Tolerance, bfloat16
from iron_core.array.numbers import BFLOAT16, LOG2_HIGH, LOG2_LOW, array_of, polynomial

#: Of q(f) = log(1 + f) / f, through the Chebyshev nodes from sqrt(1/2) - 1 to sqrt(2) - 1; from the lowest power up.
Q = (
    1.0,
    -0.49999988079071045,
    0.33333346247673035,
    -0.2500157952308655,
    0.20000939071178436,
    -0.1660836935043335,
    0.14199650287628174,
    -0.13266031444072723,
    0.12806610763072968,
    -0.07451186329126358,
)

#: C++: `logarithm` of a positive finite float32, as below. Behind BITS.
LOGARITHM = (
    array_of("Q", Q)
    + array_of("LOG2_PARTS", (LOG2_HIGH, LOG2_LOW))
    + """
static inline float logarithm(float x) {
  int32_t tiny = bits(x) < 0x00800000 ? 23 : 0;  // below the normal numbers
  if (tiny)
    x = x * 8388608.0f;
  int32_t e = ((int32_t)bits(x) - 0x3F3504F3) >> 23;
  float f = number(bits(x) - ((uint32_t)e << 23)) - 1;
  float q = Q[9];
  for (int k = 8; k >= 0; k--)
    q = q * f + Q[k];
  float whole = (float)(e - tiny);
  return (q * f + whole * LOG2_PARTS[1]) + whole * LOG2_PARTS[0];
}
"""
)

_LOG = (
    BFLOAT16
    + LOGARITHM
    + """
extern "C" void KERNEL(const float *x, uint16_t *y, int32_t n, float offset) {
  for (int32_t i = 0; i < n; i++) {
    float sum = x[i] + offset;
    if (!(sum > 0))
      y[i] = sum == 0 ? 0xFF80 : 0x7FC0;
    else
      y[i] = bits(sum) == 0x7F800000 ? 0x7F80 : narrow(logarithm(sum));
  }
}
"""
)


def logarithm(total: np.ndarray) -> np.ndarray:
    """Of positive finite float32, as the C++ has it."""
    tiny = total < np.float32(2.0**-126)
    held = (total * np.where(tiny, np.float32(2.0**23), np.float32(1))).view(np.int32)
    e = (held - 0x3F3504F3) >> 23
    f = (held - (e << 23)).view(np.float32) - np.float32(1)
    whole = (e - 23 * tiny).astype(np.float32)
    return (polynomial(Q, f) * f + whole * np.float32(LOG2_LOW)) + whole * np.float32(LOG2_HIGH)


def log(tile: int, offset: float) -> Kernel:
    """y = log(x + offset), x in float32, rounded once to bfloat16."""

    def reference(x: Any, n: int, offset: float) -> np.ndarray:
        total = np.asarray(x, np.float32) + np.float32(offset)
        inside = (total > 0) & (total < np.inf)
        made = logarithm(np.where(inside, total, np.float32(1)))
        edges = np.where(total == 0, -np.inf, np.where(total > 0, np.inf, np.nan)).astype(np.float32)
        return np.where(inside, made, edges)

    contract = KernelContract(
        roles=(In, Out, Param, Param),
        bindings=((2, tile), (3, offset)),
        reference=reference,
        tolerance=Tolerance(ulps=1),
        elementwise=True,
        ops=30 * tile,
    )
    types = (ObjectType.of(tile, np.float32), ObjectType.of(tile, bfloat16), np.int32, np.float32)
    return Kernel.inline("log", _LOG, types, contract)
