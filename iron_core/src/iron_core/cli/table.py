"""Tables and JSON on standard output."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

import click

from iron_core.cli import streams

_COLORS = {"ok": "green", "available": "green", "failed": "red", "unavailable": "yellow", "ambiguous": "yellow", "shadowed": "yellow"}
_COLORS |= {"incompatible": "yellow", "denied": "bright_black", "FAILED": "red", "note": "yellow", "problem": "red"}


def print_table(headers: Sequence[str], rows: Sequence[Sequence[Any]], *, fit: Sequence[str] | None = None) -> None:
    """Left-aligned columns two spaces apart; the words of a status are coloured on a terminal.

    fit: within the width of a terminal, or COLUMNS where that is set: the last column goes on in further lines, and cells of these
    columns are cut short, one column after another; where that will not do they are left out, but for the last of them. In a pipe
    lines are as long as they are.
    """
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [list(headers), *cells]) for i in range(len(headers))]
    room = _width() if fit is not None else None
    if room is not None:
        named = [list(headers).index(header) for header in fit or () if header in headers]
        gone = _narrow(widths, named, room)
        here = [i for i in range(len(headers)) if i not in gone]
        headers, widths = [headers[i] for i in here], [widths[i] for i in here]
        cells = [[row[i] for i in here] for row in cells]
    _line([click.style(h.ljust(w), bold=True) for h, w in zip(headers, widths, strict=True)])
    for row in cells:
        *front, last = row
        shown = [_cut(cell, width) for cell, width in zip(front, widths[:-1], strict=True)]
        for number, part in enumerate(textwrap.wrap(last, widths[-1]) or [""]) if room is not None else [(0, last)]:
            line = [*([""] * len(shown) if number else shown), part]
            _line([_styled(cell, width) for cell, width in zip(line, widths, strict=True)])


def _width() -> int | None:
    """Columns of the terminal; None where there is none and COLUMNS says nothing."""
    return shutil.get_terminal_size((0, 0)).columns or None


#: No column becomes narrower than these, the last one, which is wrapped, and those that are cut.
_LAST, _LEAST = 24, 8


def _narrow(widths: list[int], named: list[int], room: int) -> set[int]:
    """Make columns narrower until a line fits: the last as far as it wraps well, then the named ones in this order. Returns those of
    them that are to be left out."""
    over = sum(widths) + 2 * (len(widths) - 1) - room
    for column, least in ((len(widths) - 1, _LAST), *((column, _LEAST) for column in named)):
        less = max(0, min(over, widths[column] - least))
        widths[column] -= less
        over -= less
    gone = set()
    for column in named[:-1]:
        if over > 0:
            gone.add(column)
            over -= widths[column] + 2
    if gone and over < 0:  # what that is too much, the last of them has
        widths[named[-1]] -= over
    return gone


def _cut(cell: str, width: int) -> str:
    return cell if len(cell) <= width else f"{cell[: width - 1]}…"


def _styled(cell: str, width: int) -> str:
    color = _COLORS.get(cell.partition(":")[0])
    padded = cell.ljust(width)
    return click.style(padded, fg=color) if color else padded


def _line(cells: list[str]) -> None:
    color = False if os.environ.get("NO_COLOR") else None
    # click drops the styles in a pipe; what then trails is padding alone.
    click.echo(click.unstyle("  ".join(cells)).rstrip() if not _terminal() else "  ".join(cells), color=color)


def _terminal() -> bool:
    return sys.stdout.isatty()


def print_json(facts: Any, indent: int | None = 2) -> None:
    """One JSON value, keys in the order given; alone on standard output, whatever else is printed meanwhile."""
    stream = streams.answer()
    text = json.dumps(facts, indent=indent, ensure_ascii=False)
    try:
        text.encode(getattr(stream, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(facts, indent=indent)
    click.echo(text, file=stream)
