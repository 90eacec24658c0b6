"""Colours of operators in one picture: as far apart as their number allows, the commonest operator's first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from iron_core.visualize.run_list import Row

#: Degrees between one hue and the next: the golden angle, by which no two of the first dozens are near.
_FIRST, _STEP = 210.0, 137.508


def hues(rows: Iterable[Row]) -> dict[str, int]:
    """By operator, its hue in degrees."""
    counted = Counter(row.operator for row in rows)
    names = sorted(counted, key=lambda name: (-counted[name], name))
    return {name: round(_FIRST + _STEP * i) % 360 for i, name in enumerate(names)}


def pale(hue: int) -> str:
    """Of a hue, a colour that dark text is read on."""
    return f"hsl({hue},55%,78%)"
