"""One operator's array as a page: its fields, its dataflow, what its cores do and what its sequence moves."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Any

from iron_core.array.build import build
from iron_core.array.design import Design
from iron_core.array.fit import fit
from iron_core.array.sequence import Transfer, WriteWord
from iron_core.declare.field import AutoField
from iron_core.declare.rules import require_operator
from iron_core.devices import Device, meant
from iron_core.files import write_whole
from iron_core.visualize.array_plan import array_plan
from iron_core.visualize.markup import details, facts, page, table
from iron_core.visualize.page_arrays import dataflow
from iron_core.visualize.program_text import programs
from iron_core.visualize.times import duration, percent
from iron_core.visualize.tunables import moved, shown


def operator_html(
    op: Any, dev: Device | str | None = None, bound: Iterable[str] = (), path: str | Path | None = None, *, us: float | None = None
) -> str:
    """The page of an operator on a device's array; written to `path` if given.

    dev: the current device where it is left out. bound: members that calls give numbers for. us: what a call takes, where that is
    known. Unresolvable where no array takes it.
    """
    require_operator(op, "operator_html()")
    dev = meant(dev, "operator_html()")
    op = op.resolved(dev)
    design = build(op, dev, tuple(bound)).design
    plan = array_plan(design.array, fit(design))
    fullest = max(plan.held.values(), key=lambda one: one.used / one.there)
    name = type(op.base).__name__
    figures = [(duration(us), "a call")] if us is not None else []
    figures += [
        (str(len({col for col, _ in plan.tiles})), "columns"),
        (str(len(design.array.cores)), "cores"),
        (str(len(plan.streams)), "streams"),
        (percent(fullest.used / fullest.there), f"of the fullest {'core' if fullest.kind == 'core' else 'memory tile'}"),
        (str(len(design.sequence.transfers())), "transfers of its sequence"),
    ]
    body = [
        f"<h1>{escape(name)} on {escape(str(dev))}</h1>",
        f"<p class='soft'>{escape((type(op.base).__doc__ or '').strip().partition(chr(10))[0])}</p>",
        facts(figures),
        "<h2>Dataflow</h2>",
        dataflow(plan, name),
        "<h2>Fields</h2>",
        _fields(op, dev),
        "<h2>What its cores do</h2>",
        _programs(design),
        "<h2>What its sequence moves</h2>",
        _sequence(design),
    ]
    text = page(f"{name} on {dev}", "\n".join(body))
    if path is not None:
        write_whole(path, text)
    return text


def _fields(op: Any, dev: Device) -> str:
    base, away = op.base, {one.name: one for one in moved(op, dev)}
    lines = []
    for name, field in base.fields.items():
        tunable = isinstance(field, AutoField)
        chosen = "given" if name in base.pinned else "chosen"
        note = f"{chosen}, by itself {shown(away[name].default)}" if name in away else chosen if tunable else ""
        value = getattr(base, name)
        if value is not None:
            lines.append((name, shown(value), note, "array" if name in base.array_tier else "sequence"))
    links = [(chain, type(link.op).__name__, "folded in", "array") for chain in ("prepare", "finish") for link in getattr(op, chain)]
    return table(("field", "value", "", "part of its"), [*lines, *links], "k k ", "Fields")


def _programs(design: Design) -> str:
    parts = []
    for names, text in programs(design.array):
        many = f" and {len(names) - 1} more like it" if len(names) > 1 else ""
        title = f"{escape(names[0])}<span class='soft'>{many}</span>"
        parts.append(details(title, f'<pre class="mono">{escape(text)}</pre>', opened=len(text) < 4000))
    return "\n".join(parts) or "<p class='soft'>It has no core: streams pass through its memory tiles.</p>"


def _sequence(design: Design) -> str:
    lines = []
    sequence = design.sequence
    for argument in sequence.arguments:
        moves = [s for s in sequence.steps if isinstance(s, Transfer) and s.operand == argument.operand]
        total, fifos = sum(s.elements for s in moves), dict.fromkeys(s.fifo for s in moves)
        way = "out of the array" if any(s.way == "drain" for s in moves) else "into the array"
        lines.append((argument.operand, way, len(moves), f"{total} {argument.dtype_name}", argument.elements, ", ".join(fifos)))
    head = ("tensor", "", "transfers", "elements moved", "in the tensor", "by")
    transfers = table(head, lines, "k nnn ", "Transfers")
    written = {(s.buffer, s.index): s.value for s in sequence.steps if isinstance(s, WriteWord)}
    words = []
    for value in design.array.values:
        number = written.get(value.words[0])
        words.append((value.name, "patched per call" if number is None else f"{number}, written once", f"{len(value.words)} cores"))
    patched = (word for word in sequence.words if word.kind != "core")
    words += [(word.name, f"{word.kind} of a transfer, {word.form!r}", "patched per call") for word in patched]
    return transfers + (table(("number", "is", "read by"), words, "k  ", "Numbers") if words else "")
