"""What pictures show of a version: who wrote what each step reads, and how long arena bytes are in use."""

from __future__ import annotations

from typing import Any

import attrs

from iron_core.image.plan import BufferRef, VersionPlan
from iron_core.visualize.run_list import RunList


@attrs.frozen(eq=False)
class Edge:
    """`target` (a step's number, or ("output", i)) reads what `source` (a step's number, ("input" | "resident", i)) holds."""

    source: Any
    target: Any
    ref: BufferRef


def reads(version: VersionPlan, step: int) -> list[BufferRef]:
    """References a step reads."""
    s = version.steps[step]
    return [ref for name, ref in s.operands.items() if s.op.operands[name].read]


def writes(version: VersionPlan, step: int) -> list[BufferRef]:
    """References a step writes."""
    s = version.steps[step]
    return [ref for name, ref in s.operands.items() if s.op.operands[name].written]


class _Written:
    """What of a result is still there, as byte ranges: a state's stays, for where a call writes into it is not known."""

    def __init__(self, ref: BufferRef) -> None:
        self.ref = ref
        self.left = [(ref.offset, ref.offset + ref.nbytes)]

    def __bool__(self) -> bool:
        return bool(self.left)

    def seen(self, other: BufferRef) -> bool:
        """Does a read of this see some of it?"""
        if (other.space, other.index) != (self.ref.space, self.ref.index):
            return False
        return any(other.offset < stop and start < other.offset + other.nbytes for start, stop in self.left)

    def overwritten(self, other: BufferRef) -> None:
        if other.space == "resident" or not self.seen(other):
            return
        low, high = other.offset, other.offset + other.nbytes
        parts = [part for start, stop in self.left for part in ((start, min(stop, low)), (max(start, high), stop))]
        self.left = [(start, stop) for start, stop in parts if start < stop]


def edges(version: VersionPlan) -> list[Edge]:
    """Every flow of data. Steps that wrote part of what is read are all named."""
    found: list[Edge] = []
    last: list[tuple[int, _Written]] = []
    for i in range(len(version.steps)):
        for ref in reads(version, i):
            writers = [w for w, written in last if written.seen(ref)]
            found += [Edge(w, i, ref) for w in dict.fromkeys(writers)]
            if ref.space == "input" or (ref.space == "resident" and not writers):
                found.append(Edge((ref.space, ref.index), i, ref))
        for ref in writes(version, i):
            for _, written in last:
                written.overwritten(ref)
            last = [(w, written) for w, written in last if written]
            last.append((i, _Written(ref)))
            if ref.space == "output":
                found.append(Edge(i, ("output", ref.index), ref))
            elif ref.space == "resident":
                found.append(Edge(i, ("resident", ref.index), ref))
    return found


@attrs.frozen(eq=False)
class Use:
    """Arena bytes in use: written in row `first` of the run list, read for the last time in row `last`. name: the step's that writes."""

    ref: BufferRef
    name: str
    first: int
    last: int


def arena_uses(run: RunList) -> list[Use]:
    """Every result that is left in the arena, until it is read for the last time; not what stays inside a row."""
    version, places = run.version, run.places
    uses = []
    count = len(version.steps)
    kept = [term.source for term in version.carry if isinstance(term.source, BufferRef)]
    read, written = ([ask(version, i) for i in range(count)] for ask in (reads, writes))
    at = [places.get(step.name, ()) for step in version.steps]
    for i in range(count):
        for ref in (ref for ref in written[i] if ref.space == "arena"):
            rows: set[int] = set()
            left = _Written(ref)
            for j in range(i + 1, count):
                if any(map(left.seen, read[j])):
                    rows.update(at[j])
                for other in written[j]:
                    left.overwritten(other)
                if not left:
                    break
            if any(map(left.seen, kept)):
                rows.add(len(run.rows) - 1)
            if at[i] and (not rows or not rows <= set(at[i])):
                uses.append(Use(ref, version.steps[i].name, min(at[i]), max(rows, default=min(at[i]))))
    return uses


def shape_text(ref: BufferRef) -> str:
    """`512x2048 bfloat16`."""
    return f"{'x'.join(map(str, ref.shape))} {ref.format}"
