"""The kernel of `SoftCap`'s array: tanh in float32, written in C++."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import In, Kernel, KernelContract, ObjectType, Out, Param, bfloat16
from iron_core.array.numbers import BFLOAT16, EXP, LOG2_HIGH, LOG2_LOW, POLYNOMIAL, array_of, exp_over, float32, polynomial

#: Of tanh u, where |u| is below 0.625: a polynomial in u^2, from the lowest power up.
TANH = (-3.33332819422e-1, 1.33314422036e-1, -5.37397155531e-2, 2.06390887954e-2, -5.70498872745e-3)
#: Beyond it tanh is 1 in float32.
FAR = 10.0

_SOFT_CAP = (
    BFLOAT16
    + array_of("TANH", TANH)
    + array_of("EXP", EXP)
    + array_of("LOG2", (LOG2_HIGH, LOG2_LOW))
    + POLYNOMIAL
    + """static inline float tanh_of(float u) {
  float z = u * u;
  if (z < 0.390625f)
    return polynomial(TANH, 5, z) * z * u + u;
  float twice = 2 * (u < 0 ? -u : u);
  if (twice > 20)
    twice = 20;
  int32_t k = (int32_t)(twice * 1.44269504f + 0.5f);
  float r = twice - (float)k * LOG2[0];
  r = r - (float)k * LOG2[1];
  float e = polynomial(EXP, 6, r) * (r * r) + r + 1;
  float t = 1 - 2 / (e * number((uint32_t)(k + 127) << 23) + 1);
  return u < 0 ? -t : t;
}
extern "C" void KERNEL(const uint16_t *x, uint16_t *y, int32_t n, float cap) {
  for (int32_t i = 0; i < n; i++) {
    float u = widen(x[i]) / cap;
    y[i] = u != u ? x[i] : narrow(tanh_of(u) * cap);
  }
}
"""
)


def _tanh(u: np.ndarray) -> np.ndarray:
    """As the C++ has it."""
    z = u * u
    twice = np.minimum(np.float32(2) * np.abs(u), np.float32(2 * FAR))
    k = (twice * np.float32(1.44269504) + np.float32(0.5)).astype(np.int32)
    t = np.float32(1) - np.float32(2) / (exp_over(twice, k) * np.exp2(k.astype(np.float32)) + np.float32(1))
    return np.where(z < np.float32(0.390625), polynomial(TANH, z) * z * u + u, np.copysign(t, u))


def soft_cap(tile: int, cap: float) -> Kernel:
    """y = cap tanh(x / cap)."""

    def reference(x: Any, n: int, cap: float) -> np.ndarray:
        wide = float32(x)
        with np.errstate(over="ignore", invalid="ignore"):
            u = wide / np.float32(cap)
            return np.where(np.isnan(u), wide, _tanh(np.where(np.isnan(u), np.float32(0), u)) * np.float32(cap))

    line = ObjectType.of(tile, bfloat16)
    contract = KernelContract(
        roles=(In, Out, Param, Param), bindings=((2, tile), (3, cap)), reference=reference, elementwise=True, ops=20 * tile
    )
    return Kernel.inline("soft_cap", _SOFT_CAP, (line, line, np.int32, np.float32), contract)
