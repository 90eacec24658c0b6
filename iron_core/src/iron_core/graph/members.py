"""What a call may give for an operator's per-call members: extents, offsets, and the bounds and offsets of views."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from iron_core.declare.affine import Affine
from iron_core.declare.link import offset_member
from iron_core.errors import CallError, printable
from iron_core.graph.traced import IndexCheck, PerCallValue


def reach(op: Any, member: str) -> tuple[int, int] | None:
    """How many elements are used from a member's number on, and how many there are; None where nothing is known of it."""
    for operand, elements in op.placed:
        if member == offset_member(operand):
            return math.prod(op.shape(operand)), elements
    if member in op.extents:
        return 0, getattr(op, op.extents[member].field)
    scratchpad = op.scratchpads[member]
    if getattr(scratchpad, "within", None) is not None:
        return scratchpad.count, math.prod(op.shape(scratchpad.within.name))
    return _reach_of_view(op, member)


def _reach_of_view(op: Any, member: str) -> tuple[int, int] | None:
    for operand, view in op.accept_views.items():
        given, size = getattr(op, view.pattern), math.prod(op.shape(operand))
        if member == view.offset:
            patterns = () if given is None else given if isinstance(given, tuple) else (given,)
            return max((pattern.span[1] for pattern in patterns), default=size), size
        if member == view.valid and given is not None and getattr(op, view.axis) is not None:
            return 0, given.sizes[getattr(op, view.axis)]
    return None


def checks(op: Any, members: Iterable[str]) -> tuple[IndexCheck, ...]:
    """The conditions on these members' numbers where an operator runs alone, each called by the member's name."""
    found = ((member, reach(op, member)) for member in members)
    return tuple(IndexCheck(f"{type(op.base).__name__}: {member}", Affine(member), *within) for member, within in found if within)


def verify(op: Any, numbers: Mapping[str, int]) -> None:
    """CallError for a member that an operator does not have and what is no number of one, BoundsError for a number that reaches beyond
    its operand."""
    legal = [*op.scratchpads, *op.extents, *(offset_member(operand) for operand, _ in op.placed)]
    for member, number in numbers.items():
        if member not in legal:
            raise CallError(
                f"{type(op.base).__name__} has no per-call member {printable(member, 40)}. Its members: {', '.join(legal) or 'none'}."
            )
        PerCallValue(member, "scratchpad", "int32").number(number)
    for check in checks(op, numbers):
        check.verify(numbers)


def whole(op: Any, member: str) -> int:
    """A member's number where a call gives none: all of an extent or of a view's axis; an offset is at 0."""
    within = reach(op, member)
    return within[1] if within is not None and within[0] == 0 else 0
