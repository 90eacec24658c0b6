"""`PlaneQuant`: a format described by its planes."""

from __future__ import annotations

import math
from typing import Any

import attrs

from iron_core.declare.formats.plane import Plane, counts
from iron_core.declare.formats.quantized import Quantized
from iron_core.errors import FormatError


def _as_tuple(planes: Any) -> Any:
    return tuple(planes) if isinstance(planes, list) else planes


def _wrong(block: tuple[int, int], planes: tuple[Plane, ...], padded: int) -> str:
    """Why no tensor could be stored so; "" where one can."""
    if not counts(block, 1, 2):
        return f"has block={block!r}; legal: rows and columns, each at least 1"
    if not isinstance(planes, tuple) or not all(isinstance(plane, Plane) for plane in planes):
        return f"has planes={planes!r}; legal: Planes"
    roles = [plane.role for plane in planes]
    if not 1 <= roles.count("values") or roles.count("scales") != 1 or roles.count("zeros") > 1 or roles.count("minima") > 1:
        return "needs planes of values, one of scales, at most one of zeros and one of minima"
    for plane in planes:
        if plane.role == "values" and (plane.group != (1, 1) or not plane.integer):
            return f"has values {plane.number} for {plane.group} each; values are integers, each for (1, 1)"
        if plane.role == "values" and plane.shift + plane.bits > 8:
            return f"has values of {plane.shift + plane.bits} bits; legal: at most 8"
        if not plane.apart and 0 in plane.group:
            return f"has {plane.role} of a whole row or matrix inside a block; they stand apart"
        sizes, order = plane.parts(block)
        uneven = any(g and n % g for n, g in zip(block, plane.group, strict=True))
        if uneven or 0 in sizes or math.prod(sizes) != math.prod(plane.grid(block)):
            return f"has {plane.role} that do not divide its block of {block[0]} x {block[1]}"
        if plane.bits < 8 and sizes[order[-1]] * plane.bits % 8:
            return f"has {plane.role} whose innermost {sizes[order[-1]]} of {plane.bits} bits are no whole bytes"
    groups = {plane.role: plane.group for plane in planes}
    floats = any(plane.role == "zeros" and not plane.integer for plane in planes)
    if floats and ("minima" in roles or groups["zeros"] != groups["scales"]):
        return "has zeros that are no integers; legal: one for each scale, and no minima"
    values = sorted((plane for plane in planes if plane.role == "values"), key=lambda plane: plane.shift)
    return _wrong_padding(block, planes, padded) or _wrong_values(values)


def _wrong_padding(block: tuple[int, int], planes: tuple[Plane, ...], padded: int) -> str:
    """Why no row could end inside a block, at a multiple of this many columns; "" where it can, or none does (0)."""
    if type(padded) is not int or padded < 0 or (padded and block[1] % padded):
        return f"has padded={padded!r}; legal: 0, or what divides its block's {block[1]} columns"
    if padded and (block[0] == 1 or any(plane.apart for plane in planes)):
        return f"has padded={padded} beside blocks of one row or planes that stand apart; legal: 0"
    if any(padded % plane.group[1] for plane in planes if plane.group[1]):
        return f"has padded={padded}; legal: a multiple of the numbers of a row that share one"
    return ""


def _wrong_values(planes: list[Plane]) -> str:
    """Why these planes, the lowest bits first, are no integers; "" where they are."""
    top = 0
    for plane in planes:
        if plane.shift != top:
            return f"has values whose bits begin at shift={plane.shift}; legal: {top}, where those below end"
        top += plane.bits
    if len(planes) > 1 and (any(plane.signed for plane in planes) or len({plane.zero for plane in planes}) > 1):
        return f"has values in {len(planes)} planes; legal: unsigned integers, all planes with one zero="
    return ""


@attrs.frozen(cache_hash=True)
class PlaneQuant(Quantized):
    """Integers with scales, wherever they are stored: in blocks of `block` rows and columns, or apart from one another.

    `planes`, in the order in which they are stored, say what a block holds and what stands behind the blocks. Where planes
    stand apart, `block` is what rows and columns have to be multiples of. With `padded`, columns need only be multiples of it, and
    zeros fill up the last block of a row. FormatError for planes that do not fit together.
    """

    name: str
    block: tuple[int, int]
    planes: tuple[Plane, ...] = attrs.field(converter=_as_tuple)
    padded: int = attrs.field(default=0, kw_only=True)
    runs_as: str = attrs.field(default="float32", eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        why = _wrong(self.block, self.planes, self.padded)
        if why:
            raise FormatError(f"format {self.name} {why}.")
