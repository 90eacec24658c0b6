"""Tables and JSON on standard output."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from iron_core.cli import streams

_COLORS = {"ok": "green", "available": "green", "failed": "red", "unavailable": "yellow", "ambiguous": "yellow", "shadowed": "yellow"}
_COLORS |= {"incompatible": "yellow", "denied": "bright_black", "FAILED": "red", "note": "yellow", "problem": "red"}


def print_table(headers: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Left-aligned columns two spaces apart; the words of a status are coloured on a terminal."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [list(headers), *cells]) for i in range(len(headers))]
    _line([click.style(h.ljust(w), bold=True) for h, w in zip(headers, widths, strict=True)])
    for row in cells:
        _line([_styled(cell, width) for cell, width in zip(row, widths, strict=True)])


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
