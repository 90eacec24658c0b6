"""What pictures show of a version: who wrote what each step reads, and how long arena bytes are in use."""

from __future__ import annotations

from typing import Any

import attrs

from iron_core.graph.traced import TracedGraph
from iron_core.image.plan import BufferRef, Plan, VersionPlan
from iron_core.image.planner import plan_graphs


def as_plan(item: Any) -> Plan:
    """The plan of a traced graph (for the host), of a compiled graph, or the plan itself."""
    if isinstance(item, TracedGraph):
        return plan_graphs([item])
    return item if isinstance(item, Plan) else item.plan


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


def edges(version: VersionPlan) -> list[Edge]:
    """Every flow of data. Steps that wrote part of what is read are all named."""
    found: list[Edge] = []
    last: list[tuple[int, BufferRef]] = []
    for i in range(len(version.steps)):
        for ref in reads(version, i):
            writers = [w for w, written in last if written.overlaps(ref)]
            found += [Edge(w, i, ref) for w in dict.fromkeys(writers)]
            if ref.space == "input" or (ref.space == "resident" and not writers):
                found.append(Edge((ref.space, ref.index), i, ref))
        for ref in writes(version, i):
            last = [(w, r) for w, r in last if not _covers(ref, r)]
            last.append((i, ref))
            if ref.space == "output":
                found.append(Edge(i, ("output", ref.index), ref))
            elif ref.space == "resident":
                found.append(Edge(i, ("resident", ref.index), ref))
    return found


def _covers(new: BufferRef, old: BufferRef) -> bool:
    return (
        (new.space, new.index) == (old.space, old.index)
        and new.space != "resident"
        and new.offset <= old.offset
        and old.offset + old.nbytes <= new.offset + new.nbytes
    )


@attrs.frozen(eq=False)
class Use:
    """Arena bytes in use: written at step `first`, read for the last time at step `last`."""

    ref: BufferRef
    name: str
    first: int
    last: int


def arena_uses(version: VersionPlan) -> list[Use]:
    """Every result a step leaves in the arena, until it is read for the last time."""
    uses = []
    count = len(version.steps)
    kept = [term.source for term in version.carry if isinstance(term.source, BufferRef)]
    for i in range(count):
        for ref in (ref for ref in writes(version, i) if ref.space == "arena"):
            last = i
            for j in range(i + 1, count):
                if any(other.overlaps(ref) for other in reads(version, j)):
                    last = j
                if any(_covers(other, ref) for other in writes(version, j)):
                    break
            else:
                if any(source.overlaps(ref) for source in kept):
                    last = count - 1
            uses.append(Use(ref, version.steps[i].name, i, last))
    return uses


def shape_text(ref: BufferRef) -> str:
    """`512x2048 bfloat16`."""
    return f"{'x'.join(map(str, ref.shape))} {ref.format}"
