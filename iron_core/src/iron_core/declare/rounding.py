"""Rounding to a storage dtype exactly once."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core.declare.dtypes import bfloat16


def round_to(values: Any, dtype: np.dtype) -> np.ndarray:
    """`values` in `dtype`, rounded to nearest even once, whatever precision they come in.

    float64 -> bfloat16 or float16 by way of float32 would round twice; the float32 step is therefore
    rounded to odd, which keeps the information the second rounding needs. A float out of an integer dtype's
    range becomes its nearest end.
    """
    values = np.asarray(values)
    dtype = np.dtype(dtype)
    if values.dtype == dtype:
        return values
    if values.dtype.kind in "iu" and dtype.kind not in "iu":
        values = values.astype(np.float64)
    with np.errstate(over="ignore"):  # out of range rounds to infinity
        return _round(values, dtype)


def _round(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    if values.dtype == np.float64 and dtype == bfloat16:
        near = values.astype(np.float32)
        bits = near.view(np.int32).copy()
        back = near.astype(np.float64)
        inexact = (back != values) & np.isfinite(near) & np.isfinite(values)
        # Round to odd: step an inexact even result to the neighbour on the exact value's side.
        even = inexact & (bits & 1 == 0)
        away = np.abs(back) < np.abs(values)
        bits[even & away] += 1
        bits[even & ~away] -= 1
        return bits.view(np.float32).astype(bfloat16)
    if dtype.kind in "iu" and values.dtype.kind not in "iu":
        info = np.iinfo(dtype)
        return np.clip(np.rint(values.astype(np.float64)), info.min, info.max).astype(dtype)
    return values.astype(dtype)


def floored(values: Any) -> np.ndarray:
    """Floats in bfloat16, each rounded once toward minus infinity: what a core does that nobody told how to round. A NaN stays one."""
    values = np.asarray(values)
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
        if values.dtype != np.float32:
            single = np.where(single > values, np.nextafter(single, np.float32(-np.inf)), single)
    bits = single.view(np.uint32)
    down = bits & np.uint32(0xFFFF0000)
    below = (bits >> 31 == 1) & (down != bits) & np.isfinite(single)
    down = np.where(below, down + np.uint32(0x10000), down)
    down = np.where(np.isnan(single), bits | np.uint32(0x400000), down)
    return (down >> np.uint32(16)).astype(np.uint16).view(bfloat16)


def held(number: float, dtype: Any) -> float:
    """A number as `dtype` holds it."""
    return float(round_to(np.float64(number), dtype))


def widen(array: Any) -> np.ndarray:
    """A dense array or PackedArray in float64 (integers in int64): what references compute in."""
    if hasattr(array, "dequantize"):
        return array.dequantize().astype(np.float64)
    array = np.asarray(array)
    return array.astype(np.int64 if array.dtype.kind in "iu" else np.float64)
