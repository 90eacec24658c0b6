"""The kernels of `Limbs` and `Magnitude`: C++ of their own, in float32, one number after another."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import In, Kernel, KernelContract, ObjectType, Out, Tolerance, bfloat16, round_to
from iron_core.array.numbers import BFLOAT16

_LIMBS = (
    BFLOAT16
    + """
extern "C" void KERNEL(const float *x, uint16_t *planes) {
  for (int32_t i = 0; i < COLS; i++) {
    float rest = x[i];
    uint16_t hi = narrow(rest);
    rest -= widen(hi);
    uint16_t mid = narrow(rest);
    rest -= widen(mid);
    planes[i] = planes[2 * COLS + i] = planes[5 * COLS + i] = hi;
    planes[COLS + i] = planes[4 * COLS + i] = mid;
    planes[3 * COLS + i] = narrow(rest);
  }
}
"""
)

_MAGNITUDES = (
    BFLOAT16
    + """
static inline uint32_t exponent(float x) { return bits(x) >> 23 & 0xFF; }

extern "C" void KERNEL(const float *x, float *y) {
  for (int32_t i = 0; i < HALF; i++) {
    // Both times a power of two, so that their squares neither overflow nor vanish.
    uint32_t top = exponent(x[i]) > exponent(x[HALF + i]) ? exponent(x[i]) : exponent(x[HALF + i]);
    top = top < 1 ? 1 : top > 253 ? 253 : top;
    float re = x[i] * number((254 - top) << 23), im = x[HALF + i] * number((254 - top) << 23);
    float square = re * re + im * im;
    // One over its root: from the bits, then by Newton's iteration.
    float over = number(0x5F3759DF - (bits(square) >> 1));
    for (int32_t n = 0; n < 4; n++)
      over = over * (1.5f - 0.5f * square * over * over);
    float root = square * over;
    root = root + 0.5f * over * (square - root * root);
    y[i] = root * number(top << 23);
  }
}
"""
)


def limbs(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(hi, mid, lo) of finite numbers, each float32 with the digits of a bfloat16."""
    hi = _bfloat16(x)
    rest = np.asarray(x, np.float32) - hi
    mid = _bfloat16(rest)
    return hi, mid, _bfloat16(rest - mid)


def _bfloat16(x: Any) -> np.ndarray:
    return np.asarray(round_to(x, bfloat16)).astype(np.float32)


def limb_planes(cols: int) -> Kernel:
    """(hi, mid, hi, lo, mid, hi) of a row of `cols` finite float32."""

    def reference(x: Any) -> np.ndarray:
        hi, mid, lo = limbs(np.reshape(x, -1))
        return np.concatenate([hi, mid, hi, lo, mid, hi])

    types = (ObjectType.of(cols, np.float32), ObjectType.of(6 * cols, bfloat16))
    contract = KernelContract(roles=(In, Out), reference=reference, tolerance=Tolerance(exact=True), ops=5 * cols)
    return Kernel.inline("limbs", _LIMBS, types, contract, dict(COLS=cols))


def magnitudes(cols: int) -> Kernel:
    """sqrt(re^2 + im^2) of a row of cols / 2 finite float32 re, then as many im: within 2e-7 of it."""

    def reference(x: Any) -> np.ndarray:
        one, half = np.float32, np.float32(0.5)
        x = np.asarray(x, one).reshape(2, -1)
        top = np.clip((x.view(np.uint32) >> 23 & 0xFF).max(0), 1, 253)
        re, im = x * ((254 - top) << 23).astype(np.uint32).view(one)
        square = re * re + im * im
        over = (np.uint32(0x5F3759DF) - (square.view(np.uint32) >> 1)).view(one)
        for _ in range(4):
            over = over * (one(1.5) - half * square * over * over)
        root = square * over
        root = root + half * over * (square - root * root)
        with np.errstate(over="ignore"):  # where the magnitude itself leaves float32
            return root * (top << 23).astype(np.uint32).view(one)

    types = (ObjectType.of(cols, np.float32), ObjectType.of(cols // 2, np.float32))
    contract = KernelContract(roles=(In, Out), reference=reference, tolerance=Tolerance(terms=-4, ulps=0), ops=12 * cols)
    return Kernel.inline("magnitudes", _MAGNITUDES, types, contract, dict(HALF=cols // 2))
