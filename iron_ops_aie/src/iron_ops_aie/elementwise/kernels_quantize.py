"""The kernels of `Quantize`, with what each promises. They compute in float32; mlir-aie has none of these."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import In, InOut, Kernel, KernelContract, ObjectType, Out, Param, Tolerance, bfloat16
from iron_core.array.numbers import BFLOAT16

#: float32 numbers that the core keeps: the largest so far, and what numbers are multiplied by.
STATE = 2
_EXACT = Tolerance(exact=True)
#: int8 is used symmetrically: -128 stands for nothing.
LARGEST = 127

_LINE = (
    BFLOAT16
    + """
// To the nearest even number: what is added leaves no digits behind the point. A NaN is 0.
static inline void line(const uint16_t *x, int8_t *y, float factor) {
  for (int32_t i = 0; i < N; i++) {
    float v = widen(x[i]) * factor;
    v = v != v ? 0.0f : v < -127.0f ? -127.0f : v > 127.0f ? 127.0f : v;
    y[i] = (int8_t)(int32_t)((v + 12582912.0f) - 12582912.0f);
  }
}
"""
)
_BY_WORD = _LINE + 'extern "C" void KERNEL(const uint16_t *x, int8_t *y, int32_t factor) { line(x, y, number((uint32_t)factor)); }\n'
_BY_STATE = _LINE + 'extern "C" void KERNEL(const uint16_t *x, const float *state, int8_t *y) { line(x, y, state[1]); }\n'
_CLEAR = 'extern "C" void KERNEL(float *state) { state[0] = state[1] = 0.0f; }\n'
_LARGEST = (
    BFLOAT16
    + """
extern "C" void KERNEL(const uint16_t *x, float *state) {
  for (int32_t i = 0; i < N; i++) {
    float v = widen(x[i] & 0x7FFF);
    state[0] = v > state[0] ? v : state[0];
  }
}
"""
)
_INVERSE = """
// Below the smallest normal number, and beyond the largest, there is none.
static inline float inverse(float scale) { return scale >= 1.17549435e-38f && scale <= 3.4028234e38f ? 1.0f / scale : 0.0f; }
"""
_ROW = (
    _LINE
    + _INVERSE
    + """
extern "C" void KERNEL(const uint16_t *x, int8_t *y, float *found) {
  float largest = 0.0f;
  for (int32_t i = 0; i < N; i++) {
    float v = widen(x[i] & 0x7FFF);
    largest = v > largest ? v : largest;
  }
  float scale = largest / 127.0f;
  line(x, y, inverse(scale));
  found[0] = scale;
}
"""
)
_SETTLE = (
    _INVERSE
    + """
extern "C" void KERNEL(float *state, float *found) {
  float scale = state[0] / 127.0f;
  state[1] = inverse(scale);
  found[0] = scale;
}
"""
)


def inverse(scale: Any) -> Any:
    """What numbers are multiplied by: float32, and 0 where the scale is no normal number, so that all of them become 0."""
    scale = np.asarray(scale, np.float32)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        return np.where((scale >= np.finfo(np.float32).tiny) & (scale < np.inf), np.float32(1) / scale, np.float32(0))[()]


def rounded(x: Any, factor: Any) -> np.ndarray:
    """int8: x times the factor in float32, to the nearest even number, from -127 to 127; a NaN is 0."""
    with np.errstate(over="ignore", invalid="ignore"):
        product = np.nan_to_num(np.asarray(x).astype(np.float32) * factor, nan=0.0, posinf=np.inf, neginf=-np.inf)
    return np.clip(np.rint(product), -LARGEST, LARGEST).astype(np.int8)


def measured(x: Any, axis: int | None = None) -> Any:
    """The scale that makes the largest number 127, of all or along an axis: max |x| / 127 in float32, NaN left out."""
    return np.nan_to_num(np.abs(np.asarray(x).astype(np.float32)), nan=0.0, posinf=np.inf).max(axis, initial=0) / np.float32(LARGEST)


def _types(tile: int) -> tuple[Any, Any, Any]:
    return ObjectType.of(tile, bfloat16), ObjectType.of(STATE, np.float32), ObjectType.of(tile, np.int8)


def by_word(tile: int) -> Kernel:
    """y = x times the float32 whose bits are given."""
    x, _, y = _types(tile)
    contract = KernelContract(
        roles=(In, Out, Param),
        reference=lambda x, bits: rounded(x, np.int32(bits).view(np.float32)),
        tolerance=_EXACT,
        elementwise=True,
        ops=2 * tile,
        poison=lambda x: x,
    )
    return Kernel.inline("quantize", _BY_WORD, (x, y, np.int32), contract, dict(N=tile))


def by_state(tile: int) -> Kernel:
    """y = x times the factor that the core has found."""
    contract = KernelContract(
        roles=(In, In, Out), reference=lambda x, state: rounded(x, np.float32(state[1])), tolerance=_EXACT, ops=2 * tile
    )
    return Kernel.inline("quantize_found", _BY_STATE, _types(tile), contract, dict(N=tile))


def clear() -> Kernel:
    """Nothing seen yet."""
    contract = KernelContract(roles=(Out,), reference=lambda: np.zeros(STATE, np.float32), tolerance=_EXACT)
    return Kernel.inline("clear", _CLEAR, (ObjectType.of(STATE, np.float32),), contract)


def largest(tile: int) -> Kernel:
    """The largest absolute number so far; a NaN is none."""

    def reference(x: Any, state: Any) -> np.ndarray:
        size = np.abs(np.asarray(x).astype(np.float32))
        return np.array([max(state[0], np.where(np.isnan(size), 0, size).max()), state[1]], np.float32)

    x, state, _ = _types(tile)
    contract = KernelContract(roles=(In, InOut), reference=reference, tolerance=_EXACT, ops=tile)
    return Kernel.inline("largest", _LARGEST, (x, state), contract, dict(N=tile))


def settle() -> Kernel:
    """The scale, and what numbers are multiplied by."""

    def reference(state: Any) -> tuple[np.ndarray, np.ndarray]:
        scale = np.float32(state[0]) / np.float32(LARGEST)
        return np.array([state[0], inverse(scale)], np.float32), np.array([scale], np.float32)

    types = (ObjectType.of(STATE, np.float32), ObjectType.of(1, np.float32))
    contract = KernelContract(roles=(InOut, Out), reference=reference, tolerance=_EXACT)
    return Kernel.inline("settle", _SETTLE, types, contract)


def row(cols: int) -> Kernel:
    """A row by the scale that fits it, and that scale."""

    def reference(x: Any) -> tuple[np.ndarray, np.ndarray]:
        scale = measured(x)
        return rounded(x, inverse(scale)), np.array([scale], np.float32)

    x, _, y = _types(cols)
    contract = KernelContract(roles=(In, Out, Out), reference=reference, tolerance=_EXACT, ops=3 * cols)
    return Kernel.inline("quantize_row", _ROW, (x, y, ObjectType.of(1, np.float32)), contract, dict(N=cols))
