"""Rounding values to integers with scales."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from iron_core.declare.formats.plane import Plane


def unrounded(stored: Sequence[Plane]) -> str:
    """Why `rounded` has no rule for these planes; "" where it has one."""
    planes = {plane.role: plane for plane in stored}
    scales, values = planes["scales"], planes["values"]
    for role, plane in planes.items():
        if role != "values" and plane.group != scales.group:
            return f"its {role} are for {plane.group} each and its scales for {scales.group}"
        if role in ("scales", "minima") and plane.integer and not plane.power:
            return f"its {role} are integers"
    if ("minima" in planes or "zeros" in planes) and (values.signed or values.zero or scales.power):
        return "its integers are signed or moved by a number, beside minima or zero points"
    return ""


def rounded(stored: Sequence[Plane], x: np.ndarray, *, down: bool = False) -> dict[str, np.ndarray]:
    """What these planes store of groups x, float32 (..., n): by role, integers (..., n) and one of the others a group (...).

    A scale is a float32 that takes the group's range to the integers': by GGUF's rule for the same layout, which rounds half
    away from zero. A scale that is a power of two is that of the largest magnitude's exponent, and integers are rounded half
    to even, or `down` (the rules of block floating point).
    """
    planes = {plane.role: plane for plane in stored}
    if planes["scales"].power:
        return _by_exponent(planes["values"], planes["scales"], x, np.floor if down else np.rint)
    zero, signed = planes["values"].zero, planes["values"].signed
    levels = (1 << sum(plane.bits for plane in stored if plane.role == "values")) - 1
    found: dict[str, Any] = {}
    if "minima" in planes:
        low, high = x.min(-1), x.max(-1)
        scales, found["minima"] = (high - low) / np.float32(levels), low
        shifted, top, bottom = x - low[..., None], levels, 0
    elif "zeros" in planes:
        low, high = np.minimum(x.min(-1), 0), np.maximum(x.max(-1), 0)
        scales = (high - low) / np.float32(levels)
        shifted, top, bottom = x, levels, 0
    else:
        extreme = np.take_along_axis(x, np.abs(x).argmax(-1)[..., None], -1)[..., 0]
        if signed:
            half = levels >> 1
            scales, top, bottom = np.abs(extreme) / np.float32(half), half, -half
        else:
            scales, top, bottom = extreme / np.float32(-zero or levels), levels - zero, -zero
        shifted = x
    with np.errstate(divide="ignore"):
        inverse = np.where(scales != 0, np.float32(1) / scales, np.float32(0)).astype(np.float32)
    whole = _half_away(shifted * inverse[..., None])
    if "zeros" in planes:
        plane = planes["zeros"]
        least, most = -plane.zero, (1 << plane.bits) - 1 - plane.zero
        zeros = np.clip(_half_away(-low * inverse), least, most)
        whole = whole + zeros[..., None]
        found["zeros"] = zeros.astype(np.int32) + plane.zero
    found["values"] = np.clip(whole, bottom, top).astype(np.int32) + zero
    return {**found, "scales": scales}


def _half_away(x: np.ndarray) -> np.ndarray:
    return np.copysign(np.floor(np.abs(x) + np.float32(0.5)), x)


def _by_exponent(values: Plane, scales: Plane, x: np.ndarray, whole: Any) -> dict[str, np.ndarray]:
    bits = values.bits
    largest = np.abs(x).max(-1)
    _, above = np.frexp(largest)
    exponent = np.where(largest > 0, np.clip(above - 1 - (bits - 2) + scales.zero, 0, (1 << scales.bits) - 1), 0)
    moved = whole(np.ldexp(x.astype(np.float64), (scales.zero - exponent)[..., None]))
    found = np.clip(moved, -(1 << (bits - 1)), (1 << (bits - 1)) - 1).astype(np.int32)
    return {"values": found, "scales": exponent.astype(np.uint8)}
