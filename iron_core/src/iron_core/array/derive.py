"""The sequence an operator has when it declares none: every input filled, every output drained, lane by lane."""

from __future__ import annotations

import math
from typing import Any

from iron_core.array.runtime import Runtime
from iron_core.declare.operand import Operand
from iron_core.declare.pattern import Pattern
from iron_core.errors import DeclarationError, Unresolvable


def derive(op: Any, rt: Runtime) -> None:
    """Preamble, drains and fills of every streamed operand, then wait for the outputs."""
    rt.preamble()
    streamed = [op.operands[name] for name in op.present if op.operands[name].tile is not None]
    both = next((operand.name for operand in streamed if operand.role == "inout"), None)
    if both is not None:
        raise DeclarationError(
            f"{type(op).__name__}.{both} is InOut: what is filled and what is drained is not said. Declare sequence(rt)."
        )
    # Drains go out before the fills that feed them.
    for operand in (*(o for o in streamed if o.role == "out"), *(o for o in streamed if o.role != "out")):
        for lane in range(operand.lanes(op)):
            _move(op, rt, operand, lane)


def _move(op: Any, rt: Runtime, operand: Operand, lane: int) -> None:
    way, wait = ("drain", True) if operand.role == "out" else ("fill", False)
    pattern, axis, word = share(op, rt, operand, lane)
    offset = rt.offset(f"{operand.name}_offset") if f"{operand.name}_offset" in op.scratchpads else None
    size = None if word is None or axis is None else (axis, word)
    rt.transfer(way, operand.name, lane, pattern, wait=wait, offset_by=offset, size_by=size)


def share(op: Any, rt: Runtime, operand: Operand, lane: int) -> tuple[Pattern, int | None, Any]:
    """The part of an operand one lane carries; under a bound also the axis it is counted on and the word that counts.

    One lane, replicated or broadcast: all of it. Otherwise equal contiguous shares of the first axis, or, under a bound,
    every lane's tiles in turn (round-robin), so that whatever a call keeps is spread over all of them.
    """
    shape = operand.shape(op)
    count = operand.lanes(op)
    tile = operand.tile_type(op).elements
    total = math.prod(shape)
    extent = bounding(op, rt, operand)
    if operand.replicate or operand.broadcast:
        count = 1
        lane = 0
    if total % (count * tile):
        raise Unresolvable(
            f"{type(op).__name__}.{operand.name}: {total} elements do not divide into tiles of {tile} over {count} lanes. "
            f"Legal: a tile or lane count whose product divides {total}."
        )
    if extent is None:
        return Pattern.whole((total // count,), lane * (total // count)), None, None
    rows = op.extents[extent].field
    inner = total // getattr(op, rows)
    if tile % inner and inner % tile:
        raise Unresolvable(f"{type(op).__name__}.{operand.name}: tiles of {tile} are not whole rows of {inner}.")
    per = max(1, tile // inner)  # rows a tile holds
    steps = total // (count * max(tile, inner))
    pattern = Pattern(lane * max(tile, inner), (steps, max(tile, inner)), (count * max(tile, inner), 1))
    return pattern, 0, rt.tiles(extent, operand.name, per * count)


def bounding(op: Any, rt: Runtime, operand: Operand) -> str | None:
    """The bound member that shortens this operand, if any."""
    for member in sorted(rt.bound & set(op.extents)):
        extent = op.extents[member]
        if extent.field in operand.axes(op):
            if operand.axes(op)[0] != extent.field:
                raise Unresolvable(
                    f"{type(op).__name__}.{operand.name}: only its first axis can be bounded per call, not {extent.field}."
                )
            return member
    return None
