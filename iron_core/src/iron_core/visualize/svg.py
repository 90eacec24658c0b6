"""`picture()`: a version's run list from top to bottom, and the arena's bytes beside it, as one SVG."""

from __future__ import annotations

from html import escape
from typing import Any

from iron_core.graph.signature import Signature
from iron_core.visualize.colours import hues, pale
from iron_core.visualize.flow import arena_uses, shape_text
from iron_core.visualize.run_list import Row, RunList
from iron_core.visualize.subject import subject
from iron_core.visualize.times import Table, Times, duration, times

ROW = 22
#: Where columns begin: of the step, its operator with what is folded in, its array, its time; then the arena.
STEP, OPERATOR, ARRAY, TIME, BAR, STEPS = 6, 130, 470, 640, 646, 720
ARENA = 420
_STYLE = "<style>text{fill:#1c2024}.head,.name{font-weight:bold}@media (prefers-color-scheme:dark){.head{fill:#e4e8eb}}</style>"


def picture(item: Any, signature: Signature | None = None, *, table: Table = None) -> str:
    """SVG of one version (the first unless `signature` names another).

    Left: what runs, a row for each step, with the steps folded into it, its array and where tunables were moved. Right: the
    arena, one column of bytes per bank; a bar spans the rows during which its bytes are in use. table: step name -> a time in
    microseconds, or any text, shown beside; or what has `step_us(name)`.
    """
    shown = subject(item)
    run = shown.run_list(shown.version(signature))
    return _svg(run, shown.plan.banks, times(table, run))


def _svg(run: RunList, banks: tuple[int, ...], priced: Times) -> str:
    height = ROW * (len(run.rows) + 2)
    width = STEPS + (ARENA + 20 if banks else 0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="Helvetica,Arial,sans-serif" font-size="11" role="img">{_STYLE}'
    ]
    heads = [(STEP, "step"), (OPERATOR, "operator"), (ARRAY, "array" if run.arrays else "runs by")]
    parts += [_text(x, 15, text, "head") for x, text in heads]
    parts += [_text(TIME, 15, f"{duration(priced.total)}", "head", "end")] if priced.known else []
    colour, slowest = {name: pale(hue) for name, hue in hues(run.rows).items()}, max(priced.us.values(), default=0.0)
    for row in run.rows:
        parts.append(_row(row, run, colour[row.operator], priced, slowest))
    total = sum(banks)
    if total:
        head = f"arena: {total} bytes in {len(banks)} bank{'s' * (len(banks) > 1)}"
        parts.append(_text(STEPS + 4, 15, head, "head"))
        starts = [sum(banks[:n]) for n in range(len(banks))]
        by = {part: colour[row.operator] for row in run.rows for part in (row.name, *(one.name for one in row.inside))}
        for use in arena_uses(run):
            x = STEPS + 4 + ARENA * (starts[use.ref.index] + use.ref.offset) / total
            wide = max(ARENA * use.ref.nbytes / total, 1)
            y, tall = ROW * (use.first + 1), ROW * (use.last - use.first + 1) - 3
            title = f"{use.name}: {shape_text(use.ref)}, bank {use.ref.index}, bytes {use.ref.offset} to {use.ref.offset + use.ref.nbytes}"
            parts.append(f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{tall}" fill="{by[use.name]}" '
                         f'stroke="#555" stroke-width="0.5"><title>{escape(title)}</title></rect>')  # fmt: skip
    return "\n".join([*parts, "</svg>"])


def _row(row: Row, run: RunList, colour: str, priced: Times, slowest: float) -> str:
    y = ROW * (row.number + 1)
    parts = [f'<g><title>{escape(row.title)}</title><rect x="0" y="{y}" width="{STEPS - 8}" height="{ROW - 3}" rx="3" fill="{colour}"/>']
    folded = "".join(f" + {part.operator}" for part in row.inside)
    beside = " ".join(filter(None, [row.follows.replace(", ", " "), *(f"{m.name}={m.value}" for m in row.moved)]))
    if row.array is None:
        where = row.how
    else:
        used = run.arrays[row.array]
        where = f"array {used.number}: {used.columns} columns, {len(used.array.cores)} cores"
    parts.append(_text(STEP, y + 14, _cut(row.name, 20), "name"))
    parts.append(_text(OPERATOR, y + 14, _cut(f"{row.operator}{folded}  {beside}".strip(), 58)))
    parts.append(_text(ARRAY, y + 14, _cut(where, 26)))
    parts.append(_text(TIME, y + 14, _cut(priced.at(row), 16), anchor="end"))
    if slowest and row.number in priced.us:
        wide = 60 * priced.us[row.number] / slowest
        parts.append(f'<rect x="{BAR}" y="{y + 5}" width="{wide:.1f}" height="9" fill="#1c2024" opacity="0.55"/>')
    return "".join([*parts, "</g>"])


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    if not text:
        return ""
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}"{named}>{escape(text)}</text>'


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
