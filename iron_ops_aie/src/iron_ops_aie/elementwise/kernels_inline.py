"""The kernels of elementwise arrays that carry their own C++, with what each promises: mlir-aie has none of these.

All are of lines of bfloat16. They compute in float32 and round once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import In, Kernel, KernelContract, ObjectType, Out, Param, Tolerance, bfloat16

#: bfloat16 to float32 and back.
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

_MAX = (
    BFLOAT16
    + """
extern "C" void KERNEL(const uint16_t *a, const uint16_t *b, uint16_t *y, int32_t n) {
  for (int32_t i = 0; i < n; i++) {
    float left = widen(a[i]);
    y[i] = left >= widen(b[i]) || left != left ? a[i] : b[i];
  }
}
"""
)

_SCALE = (
    BFLOAT16
    + """
extern "C" void KERNEL(const uint16_t *x, uint16_t *y, int32_t n, float factor) {
  for (int32_t i = 0; i < n; i++)
    y[i] = narrow(widen(x[i]) * factor);
}
"""
)

#: Of tanh u: a polynomial in u^2 where |u| is below 0.625, and of e^r, |r| up to log(2) / 2, both from the lowest power up.
TANH = (-3.33332819422e-1, 1.33314422036e-1, -5.37397155531e-2, 2.06390887954e-2, -5.70498872745e-3)
EXP = (5.0000001201e-1, 1.6666665459e-1, 4.1665795894e-2, 8.3334519073e-3, 1.3981999507e-3, 1.9875691500e-4)
#: log 2 in two parts, the first short enough that a small whole number times it is exact.
LOG2_HIGH, LOG2_LOW = 0.693359375, -2.12194440e-4
#: Beyond it tanh is 1 in float32.
FAR = 10.0


def array_of(name: str, numbers: Any) -> str:
    """C++ for an array of these, each the float32 that it is here."""
    return f"static const float {name}[] = {{{', '.join(f'{float(np.float32(n))!r}f' for n in numbers)}}};\n"


_SOFT_CAP = (
    BFLOAT16
    + array_of("TANH", TANH)
    + array_of("EXP", EXP)
    + array_of("LOG2", (LOG2_HIGH, LOG2_LOW))
    + """
// Powers from the last down.
static inline float polynomial(const float *powers, int many, float x) {
  float sum = powers[many - 1];
  for (int i = many - 2; i >= 0; i--)
    sum = sum * x + powers[i];
  return sum;
}
static inline float tanh_of(float u) {
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


def _float32(tile: Any) -> np.ndarray:
    return np.asarray(tile).astype(np.float32)


def polynomial(powers: Any, x: np.ndarray) -> np.ndarray:
    """In float32, powers from the last down: what the C++ does."""
    total = np.full_like(x, np.float32(powers[-1]))
    for power in powers[-2::-1]:
        total = total * x + np.float32(power)
    return total


def _tanh(u: np.ndarray) -> np.ndarray:
    """As the C++ has it."""
    z = u * u
    twice = np.minimum(np.float32(2) * np.abs(u), np.float32(2 * FAR))
    k = (twice * np.float32(1.44269504) + np.float32(0.5)).astype(np.int32)
    r = twice - k.astype(np.float32) * np.float32(LOG2_HIGH)
    r = r - k.astype(np.float32) * np.float32(LOG2_LOW)
    e = polynomial(EXP, r) * (r * r) + r + np.float32(1)
    t = np.float32(1) - np.float32(2) / (e * np.exp2(k.astype(np.float32)) + np.float32(1))
    return np.where(z < np.float32(0.390625), polynomial(TANH, z) * z * u + u, np.copysign(t, u))


def maximum(tile: int) -> Kernel:
    """y = max(a, b); a NaN where either is one."""
    line = ObjectType.of(tile, bfloat16)
    contract = KernelContract(
        roles=(In, In, Out, Param),
        bindings=((3, tile),),
        reference=lambda a, b, n: np.maximum(_float32(a), _float32(b)),
        tolerance=Tolerance(exact=True),
        elementwise=True,
        ops=tile,
    )
    return Kernel.inline("maximum", _MAX, (line, line, line, np.int32), contract)


def _with_number(name: str, source: str, tile: int, number: float, reference: Any, ops: int) -> Kernel:
    line = ObjectType.of(tile, bfloat16)
    contract = KernelContract(
        roles=(In, Out, Param, Param), bindings=((2, tile), (3, number)), reference=reference, elementwise=True, ops=ops * tile
    )
    return Kernel.inline(name, source, (line, line, np.int32, np.float32), contract)


def scale(tile: int, factor: float) -> Kernel:
    """y = factor x."""
    return _with_number("scale", _SCALE, tile, factor, lambda x, n, factor: _float32(x) * np.float32(factor), 1)


def soft_cap(tile: int, cap: float) -> Kernel:
    """y = cap tanh(x / cap)."""

    def reference(x: Any, n: int, cap: float) -> np.ndarray:
        wide = _float32(x)
        with np.errstate(over="ignore", invalid="ignore"):
            u = wide / np.float32(cap)
            return np.where(np.isnan(u), wide, _tanh(np.where(np.isnan(u), np.float32(0), u)) * np.float32(cap))

    return _with_number("soft_cap", _SOFT_CAP, tile, cap, reference, 20)
