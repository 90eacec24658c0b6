"""The arrays of a page: each with who uses it, its picture, its streams and its fullest tiles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from html import escape

from iron_core.array.pools import Place
from iron_core.devices import CORE_ROW, MEMORY_ROW
from iron_core.visualize.array_plan import ArrayPlan, array_plan, same_but_for_numbers, tile_name
from iron_core.visualize.array_svg import array_svg
from iron_core.visualize.markup import Raw, bar, chip, details, table
from iron_core.visualize.run_list import RunList, Used
from iron_core.visualize.times import Times, duration, percent


def arrays(run: RunList, priced: Times, hue: Mapping[str, int], prefix: str) -> str:
    """Every array of a run list, those that take the most time, or else the most steps, first."""

    def weight(used: Used) -> tuple[float, int]:
        return priced.of([run.rows[i] for i in used.steps]), len(used.steps)

    order = sorted(run.arrays, key=weight, reverse=True)
    return "\n".join(_array(run, used, priced, hue, prefix, opened=used is order[0]) for used in order)


def _array(run: RunList, used: Used, priced: Times, hue: Mapping[str, int], prefix: str, opened: bool) -> str:
    rows = [run.rows[i] for i in used.steps]
    plan = array_plan(used.array, used.placement)
    operators = Counter(row.operator for row in rows)
    names = " ".join(f"{chip(hue[name])}{escape(name)}" for name in operators)
    us = priced.of(rows)
    share = f", {duration(us)}, {percent(us / priced.steps)} of all steps" if priced.known and us else ""
    many = f"{used.columns} column{'s' * (used.columns != 1)}, {len(used.array.cores)} core{'s' * (len(used.array.cores) != 1)}"
    steps = f"{len(rows)} step{'s' * (len(rows) != 1)}"
    title = f"<b>array {used.number}</b> {names} <span class='soft'>{many} · {steps}{share}</span>"
    alike: dict[tuple[str, ...], int] = {}
    for row in rows:
        held = ", ".join(f"{part.operator} {part.how}" for part in row.inside)
        tuned = " ".join(f"{name}={value}" for name, value in row.tunables)
        key = (row.operator, row.short, held, tuned)
        alike[key] = alike.get(key, 0) + 1
    users = table(("operator", "of", "folded in", "tunables", "steps"), [(*key, n) for key, n in alike.items()], "k   n", "Who uses it")
    return details(title, users + dataflow(plan, f"array {used.number}"), opened=opened, id=f"{prefix}a{used.number}")


def dataflow(plan: ArrayPlan, name: str) -> str:
    """The picture of an array with its legend, and in words its streams and what its tiles hold."""
    cols, rows = {col for col, _ in plan.tiles}, max(row for _, row in plan.tiles) + 1
    kinds = Counter("cores" if row >= CORE_ROW else "memory tiles" if row == MEMORY_ROW else "shims" for _, row in plan.tiles)
    counted = ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items()))
    title = f"{name} on {plan.dev}: {counted} in {len(cols)} columns, {len(plan.streams)} streams"
    free = plan.dev.core_rows + CORE_ROW - rows
    note = {0: "", 1: " The row above holds nothing."}.get(free, f" The {free} rows above hold nothing.")
    legend = _legend(plan)
    warning = f'<p class="warn">No paths are shown: {escape(plan.unrouted)}</p>' if plan.unrouted else ""
    how = "A box is a tile, the bar in it how full its memory is; the square below is its stream switch."
    said = f'<p class="soft">{escape(title)}.{note} {how}</p>'
    tables = details(f"its {len(plan.streams)} streams in words", _streams(plan)) + details("what its tiles hold", _held(plan))
    return f'{said}{legend}{warning}<div class="wide">{array_svg(plan, title)}</div>{tables}'


def _legend(plan: ArrayPlan) -> str:
    items = []
    for i, operand in enumerate(plan.operands):
        lanes = plan.array.lanes_of(operand)
        ends = [plan.array.fifo(lane.fifo) for lane in lanes if any(f.name == lane.fifo for f in plan.array.fifos)]
        kinds = {plan.array.tile(fifo.producer).kind for fifo in ends}
        way = "in" if kinds == {"shim"} else "out"
        what = f"{escape(operand)} <span class='soft'>{way} by {len(lanes)} stream{'s' * (len(lanes) != 1)}</span>"
        items.append(f'<li class="o{i % 8}"><span class="swatch"></span>{what}</li>')
    if any(not stream.operand for stream in plan.streams):
        items.append('<li class="inner"><span class="swatch"></span>between cores</li>')
    if any(stream.path is None for stream in plan.streams):
        items.append('<li class="inner"><span class="swatch" style="border-top-style:dotted"></span>through a neighbour\'s memory</li>')
    return f'<ul class="legend">{"".join(items)}</ul>'


def _streams(plan: ArrayPlan) -> str:
    lines: list[list[object]] = []
    for group in same_but_for_numbers(plan):
        first, many = group[0], len(group)
        name = first.name if many == 1 else f"{first.name} … {group[-1].name}"
        to = ", ".join(first.targets[:3]) + (f", … ({len(first.targets)} in all)" if len(first.targets) > 3 else "")
        ways = Counter(stream.how for stream in group)
        how = ", ".join(way if len(ways) == 1 else f"{n} by {way}" for way, n in ways.items())
        lines.append([name, many, first.operand, first.kind, first.depth, first.nbytes, first.source, to, how, first.link])
    head = ("stream", "alike", "carries", "objects", "depth", "bytes each", "the first from", "to", "by", "at a memory tile")
    return table(head, lines, "kn  nn", "Streams")


def _held(plan: ArrayPlan) -> str:
    groups: dict[tuple[int, str], list[Place]] = {}
    for place, held in plan.held.items():
        groups.setdefault((held.used, held.kind), []).append(place)
    lines: list[list[object]] = []
    for (used, _), places in sorted(groups.items(), reverse=True):
        held = plan.held[places[0]]
        names = tile_name(plan, places[0]) + (f" and {len(places) - 1} more" if len(places) > 1 else "")
        where = Raw(f"{bar(used / held.there, 80)} {used} of {held.there}")
        parts = "; ".join(f"{what}: {size}" for what, size in held.parts)
        lines.append([names, where, percent(used / held.there), parts])
    return table(("tile", "bytes", "", "of which"), lines, "k n ", "What tiles hold")
