"""What an operator becomes on a device, in words: which field decides what, and how each number reaches the array."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from iron_core.array.build import build
from iron_core.array.design import Design
from iron_core.array.fit import fit
from iron_core.array.memory import memory
from iron_core.array.pools import TilePlacement, fifo_pools
from iron_core.array.sequence import Transfer, WriteWord
from iron_core.declare.field import AutoField
from iron_core.declare.rules import require_operator
from iron_core.devices import Device, device, meant


def explain(op: Any, dev: Device | str | None = None, bound: Iterable[str] = ()) -> str:
    """The fields by tier, the array (where its cores are, what each memory holds), its transfers and its words.

    dev: the current device where it is left out. bound: members that calls give numbers for. Unresolvable where no array takes
    it; CallError where no device is meant.
    """
    require_operator(op, "explain()")
    dev = meant(dev, "explain()")
    op = op.resolved(dev)
    members = tuple(bound)
    design = build(op, dev, members).design
    places = fit(design)
    lines = [f"{op!r} on {dev}"]
    for title, chosen in (("array", True), ("sequence", False)):
        fields = [f"{n}={_shown(getattr(op, n))}{_origin(op, n)}" for n in op.fields if (n in op.array_tier) is chosen]
        lines.append(f"  {title:<9}  {', '.join(fields) or 'no field'}")
    lines += _array(design, places)
    lines += [f"  remark     {remark}"] if (remark := op.base.array_remark()) else []
    lines += _sequence(design)
    return "\n".join(lines)


def _shown(value: Any) -> str:
    return str(getattr(value, "name", value))


def _origin(op: Any, name: str) -> str:
    if not isinstance(op.fields[name], AutoField):
        return ""
    return " (given)" if name in op.pinned else " (chosen)"


def _array(design: Design, places: TilePlacement) -> list[str]:
    array = design.array
    held = memory(array, device(array.dev), fifo_pools(array, places), places)
    columns = sorted({col for col, _ in places.values()})
    lines = [f"  cores      {len(array.cores)} on columns {', '.join(map(str, columns))}; {len(array.fifos)} fifos"]
    for kind, what in (("core", "core"), ("mem", "memory tile")):
        fullest = max((one for one in held if one.kind == kind), key=lambda one: one.used, default=None)
        if fullest is not None:
            lines.append(f"  memory     up to {fullest.used} bytes of a {what}'s {fullest.there}")
    return lines


def _sequence(design: Design) -> list[str]:
    lines = []
    for argument in design.sequence.arguments:
        moves = [s for s in design.sequence.steps if isinstance(s, Transfer) and s.operand == argument.operand]
        if moves:
            many = f"{len(moves)} transfer{'s' if len(moves) > 1 else ''}"
            total = sum(s.elements for s in moves)
            lines.append(f"  {argument.operand:<9}  {many} of {total} {argument.dtype_name} in all, {argument.elements} in the tensor")
    written = {(s.buffer, s.index): s.value for s in design.sequence.steps if isinstance(s, WriteWord)}
    for value in design.array.values:
        number = written.get(value.words[0])
        how = "a word patched per call" if number is None else f"{number}, written once by the sequence"
        lines.append(f"  value      {value.name}: {how}")
    for word in design.sequence.words:
        if word.kind != "core":
            lines.append(f"  word       {word.name}: {word.kind} of a transfer, patched per call ({word.form!r})")
    return lines
