"""Pieces of HTML: tables, lists of facts, pages that need nothing from outside."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from iron_core.visualize import style


class Raw(str):
    """Text that is markup already."""


def cell(given: object) -> str:
    """As markup: text is escaped."""
    return given if isinstance(given, Raw) else escape(str(given), quote=True)


def table(
    head: Sequence[str], rows: Iterable[Sequence[object]], kinds: str = "", caption: str = "", *, kind: str = "", ids: Sequence[str] = ()
) -> str:
    """kinds: a letter per column: "n" for numbers, "k" for what is not broken into lines, "e" for expressions. caption: for those who do
    not see it. kind: of the table; ids: of its rows."""
    classes = [f' class="{letter}"' if letter.strip() else "" for letter in kinds.ljust(len(head))]
    top = "".join(f'<th scope="col"{c}>{cell(h)}</th>' for h, c in zip(head, classes, strict=True))
    lines = []
    for number, row in enumerate(rows):
        named = f' id="{ids[number]}"' if ids else ""
        lines.append(f"<tr{named}>" + "".join(f"<td{c}>{cell(x)}</td>" for x, c in zip(row, classes, strict=True)) + "</tr>")
    own = (f' class="{kind}"' if kind else "") + (f' aria-label="{escape(caption, quote=True)}"' if caption else "")
    body = "\n".join(lines)
    return f'<div class="wide"><table{own}><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Figures, each with what it counts."""
    return '<ul class="facts">' + "".join(f"<li><b>{cell(n)}</b><span>{cell(what)}</span></li>" for n, what in pairs) + "</ul>"


def details(summary: str, body: str, *, opened: bool = False, id: str = "") -> str:
    """summary, body: markup."""
    named = f' id="{id}"' if id else ""
    return f"<details{named}{' open' if opened else ''}><summary>{summary}</summary>{body}</details>"


def bar(share: float, most: int = 160) -> Raw:
    """A bar of so many of `most` pixels."""
    return Raw(f'<span class="bar" style="width:{max(share, 0) * most:.0f}px"></span>')


def chip(hue: int) -> Raw:
    return Raw(f'<span class="chip" style="--h:{hue}"></span>')


def size(nbytes: int) -> str:
    """`269 MB`."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= scale:
            return f"{nbytes / scale:.3g} {unit}"
    return f"{nbytes} B"


def page(title: str, body: str, script: str = "") -> str:
    """A whole document. body: markup, of the sheet `style`."""
    sheet = style.PAGE + style.ARRAY + style.OVERVIEW + style.CHART
    tail = f"<script>{script}</script>" if script else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{escape(title)}</title><link rel="icon" href="data:,"><style>{sheet}</style></head>'
        f"<body><main>\n{body}\n</main>{tail}</body></html>\n"
    )
