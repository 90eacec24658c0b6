"""Numbers as kernels compute with them: what the sources of `Kernel.inline` share in C++, and the numpy of their references."""

from __future__ import annotations

from typing import Any

import numpy as np

#: C++: a float32 of its bits, and its bits.
BITS = """
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
"""

#: C++: those, and bfloat16 to float32 and back.
BFLOAT16 = (
    BITS
    + """static inline float widen(uint16_t x) { return number((uint32_t)x << 16); }
// To the nearest even number; a NaN stays one.
static inline uint16_t narrow(float x) {
  uint32_t held = bits(x);
  return x != x ? held >> 16 | 0x40 : (held + 0x7FFF + (held >> 16 & 1)) >> 16;
}
"""
)

#: C++: `made`, bfloat16 where NARROW says so and else float32, and how a float32 becomes one.
MADE = (
    BFLOAT16
    + """
#if NARROW
typedef uint16_t made;
static inline made make(float x) { return narrow(x); }
#else
typedef float made;
static inline made make(float x) { return x; }
#endif
"""
)

#: log 2 in two parts, the first short enough that a small whole number times it is exact.
LOG2_HIGH, LOG2_LOW = 0.693359375, -2.12194440e-4
#: Of (e^r - 1 - r) / r^2, |r| up to log(2) / 2, from the lowest power up.
EXP = (5.0000001201e-1, 1.6666665459e-1, 4.1665795894e-2, 8.3334519073e-3, 1.3981999507e-3, 1.9875691500e-4)
#: `polynomial`, as below, in C++.
POLYNOMIAL = """
// Powers from the last down.
static inline float polynomial(const float *powers, int many, float x) {
  float sum = powers[many - 1];
  for (int i = many - 2; i >= 0; i--)
    sum = sum * x + powers[i];
  return sum;
}
"""


def array_of(name: str, numbers: Any) -> str:
    """C++ for an array of these, each the float32 that it is here."""
    return f"static const float {name}[] = {{{', '.join(f'{float(np.float32(n))!r}f' for n in numbers)}}};\n"


#: C++: `power`, as below. Behind BITS.
POWER = (
    array_of("EXP", EXP)
    + array_of("LOG2", (LOG2_HIGH, LOG2_LOW))
    + POLYNOMIAL
    + """
// e^x: 0 below -87, and no more than e^88. A NaN stays one.
static inline float power(float x) {
  if (x != x)
    return x;
  if (x < -87)
    return 0;
  if (x > 88)
    x = 88;
  float n = x * 1.44269504f;
  int32_t k = (int32_t)(x < 0 ? n - 0.5f : n + 0.5f);
  float r = x - (float)k * LOG2[0];
  r = r - (float)k * LOG2[1];
  return (polynomial(EXP, 6, r) * (r * r) + r + 1) * number((uint32_t)(k + 127) << 23);
}
"""
)


def float32(tile: Any) -> np.ndarray:
    """A tile's numbers, widened."""
    return np.asarray(tile).astype(np.float32)


def polynomial(powers: Any, x: np.ndarray) -> np.ndarray:
    """In float32, powers from the last down: what the C++ does."""
    total = np.full_like(x, np.float32(powers[-1]))
    for power in powers[-2::-1]:
        total = total * x + np.float32(power)
    return total


def exp_over(x: np.ndarray, k: np.ndarray) -> np.ndarray:
    """e^x / 2^k in float32, k the whole numbers nearest to x / log 2: what the C++ does."""
    r = x - k.astype(np.float32) * np.float32(LOG2_HIGH)
    r = r - k.astype(np.float32) * np.float32(LOG2_LOW)
    return polynomial(EXP, r) * (r * r) + r + np.float32(1)


def power(x: Any) -> np.ndarray:
    """e^x of float32, 0 below -87 and no more than e^88: what the C++ does."""
    x = np.asarray(x, np.float32)
    under, lost = x < -87, np.isnan(x)
    held = np.where(under | lost, np.float32(0), np.minimum(x, np.float32(88)))
    k = (held * np.float32(1.44269504) + np.where(held < 0, np.float32(-0.5), np.float32(0.5))).astype(np.int32)
    made = exp_over(held, k) * np.exp2(k.astype(np.float32))
    return np.where(lost, x, np.where(under, np.float32(0), made))
