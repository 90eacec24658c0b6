"""What a call may give for an operator's per-call members: extents, offsets, and the bounds and offsets of views."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from iron_core.declare.affine import Affine
from iron_core.declare.link import offset_member
from iron_core.graph.traced import IndexCheck


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
