"""The kernel of the array of an exact `GELU`: the normal distribution's tail in float32, written in C++.

Where t = |x|, the tail beyond t is e^(-t^2 / 2) / 2 times a function that falls as 1 / t, which is u p(2 u - 1) with u = 1 / (1 + 0.32 t)
and p a polynomial. The polynomial leaves 3.3e-8 of the tail.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import In, Kernel, KernelContract, ObjectType, Out, Param, bfloat16
from iron_core.array.numbers import BFLOAT16, EXP, LOG2_HIGH, LOG2_LOW, POLYNOMIAL, array_of, exp_over, float32, polynomial

#: Of p, through the Chebyshev nodes from -1 to 1; from the lowest power up.
TAIL = (
    0.46941033005714417, 0.33597642183303833, 0.16170282661914825, 0.040847159922122955, -0.0034053160343319178,
    -0.00510964822024107, -5.079199399915524e-05, 0.0007071596919558942, 4.46693866251735e-06, -8.26371178845875e-05,
)  # fmt: skip
#: What t is multiplied by in u.
FALL = 0.32
#: e^-x below it is no normal number.
FAR = 87.0

_GELU = (
    BFLOAT16
    + array_of("TAIL", TAIL)
    + array_of("EXP", EXP)
    + array_of("LOG2", (LOG2_HIGH, LOG2_LOW))
    + POLYNOMIAL
    + """extern "C" void KERNEL(const uint16_t *x, uint16_t *y, int32_t n) {
  for (int32_t i = 0; i < n; i++) {
    float wide = widen(x[i]), t = wide < 0 ? -wide : wide;
    float u = 1 / (1 + 0.32f * t), half = t * t * 0.5f;
    if (half > 87.0f)
      half = 87.0f;
    int32_t k = -(int32_t)(half * 1.44269504f + 0.5f);
    float r = -half - (float)k * LOG2[0];
    r = r - (float)k * LOG2[1];
    float e = polynomial(EXP, 6, r) * (r * r) + r + 1;
    float tail = polynomial(TAIL, 10, 2 * u - 1) * u * (e * number((uint32_t)(k + 127) << 23)) * 0.5f;
    y[i] = wide != wide ? x[i] : narrow(wide * (wide < 0 ? tail : 1 - tail));
  }
}
"""
)


def _gelu(x: np.ndarray) -> np.ndarray:
    """As the C++ has it."""
    t, one = np.abs(x), np.float32(1)
    u = one / (one + np.float32(FALL) * t)
    half = np.minimum(t * t * np.float32(0.5), np.float32(FAR))
    k = -(half * np.float32(1.44269504) + np.float32(0.5)).astype(np.int32)
    e = exp_over(-half, k) * np.exp2(k.astype(np.float32))
    tail = polynomial(TAIL, np.float32(2) * u - one) * u * e * np.float32(0.5)
    return np.asarray(x * np.where(x < 0, tail, one - tail))


def gelu_exact(tile: int) -> Kernel:
    """y = x (1 + erf(x / sqrt(2))) / 2."""

    def reference(x: Any, n: int) -> np.ndarray:
        wide = float32(x)
        with np.errstate(over="ignore", invalid="ignore"):
            return np.where(np.isnan(wide), wide, _gelu(np.where(np.isnan(wide), np.float32(0), wide)))

    line = ObjectType.of(tile, bfloat16)
    contract = KernelContract(roles=(In, Out, Param), bindings=((2, tile),), reference=reference, elementwise=True, ops=30 * tile)
    return Kernel.inline("gelu_exact", _GELU, (line, line, np.int32), contract)
