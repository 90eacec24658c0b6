"""Operating points: a design whose work follows a per-call value, as attention's over the context, is timed at several of its numbers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

import attrs

from iron_core.graph.members import whole

#: Contexts that are timed, each for an equal share of the positions.
SHARES = 4
#: The context at which outputs are compared where time is simulated: how a setting rounds does not follow it, what comparing takes does.
COMPARED = 512


@attrs.frozen
class Point:
    """label: "kv_valid=1792"; "" where there is one point alone. weight: its share in the mean. members: every per-call number."""

    label: str
    weight: float
    members: Mapping[str, int]


def ladder(last: int) -> tuple[int, ...]:
    """The middles of equal shares of the positions up to `last`."""
    return tuple(dict.fromkeys(max(1, last * (2 * share + 1) // (2 * SHARES)) for share in range(SHARES)))


def points(
    op: Any, members: Collection[str], chunk: int, context: int | None = None, scales: Mapping[str, int] = MappingProxyType({})
) -> tuple[Point, ...]:
    """Where an operator is timed that calls give numbers for these members: offsets at 0 and extents whole; but an extent longer than
    `chunk`, the rows of a call, follows the context, and is timed at a ladder up to it, or up to `context` of it. scales: of members
    that count more than rows, numbers a row."""
    every = {name: whole(op, name) for name in members}
    long = _long(op, every, chunk, scales)
    if not long:
        return (Point("", 1.0, every),)
    most = max(long.values())
    rungs = ladder(min(most, context or most))
    found = []
    for n in rungs:
        own = {name: min(n * scales.get(name, 1), every[name]) for name in long}
        label = ",".join(f"{name}={number}" for name, number in own.items())
        found.append(Point(label, 1 / len(rungs), every | own))
    return tuple(found)


def compared(op: Any, members: Mapping[str, int], chunk: int, scales: Mapping[str, int] = MappingProxyType({})) -> Mapping[str, int]:
    """A point's members with what follows the context at `COMPARED`, or all of it where that is less."""
    long = _long(op, {name: whole(op, name) for name in members}, chunk, scales)
    return {**members, **{name: min(max(COMPARED, chunk) * scales.get(name, 1), members[name]) for name in long}}


def _long(op: Any, every: Mapping[str, int], chunk: int, scales: Mapping[str, int]) -> dict[str, int]:
    """The extents that follow the context, and how far each goes."""
    rows = {name: n // scales.get(name, 1) for name, n in every.items() if name in op.extents}
    return {name: n for name, n in rows.items() if n > chunk}
