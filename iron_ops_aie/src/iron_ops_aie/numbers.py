"""Numbers as kernels compute with them, in C++ and in the numpy of their references."""

from __future__ import annotations

from typing import Any

import numpy as np

#: C++: bfloat16 to float32 and back, and a float32's bits.
BFLOAT16 = """
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
static inline float widen(uint16_t x) { return number((uint32_t)x << 16); }
// To the nearest even number; a NaN stays one.
static inline uint16_t narrow(float x) {
  uint32_t held = bits(x);
  return x != x ? held >> 16 | 0x40 : (held + 0x7FFF + (held >> 16 & 1)) >> 16;
}
"""

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


def array_of(name: str, numbers: Any) -> str:
    """C++ for an array of these, each the float32 that it is here."""
    return f"static const float {name}[] = {{{', '.join(f'{float(np.float32(n))!r}f' for n in numbers)}}};\n"


def float32(tile: Any) -> np.ndarray:
    """A tile's numbers, widened."""
    return np.asarray(tile).astype(np.float32)


def polynomial(powers: Any, x: np.ndarray) -> np.ndarray:
    """In float32, powers from the last down: what the C++ does."""
    total = np.full_like(x, np.float32(powers[-1]))
    for power in powers[-2::-1]:
        total = total * x + np.float32(power)
    return total
