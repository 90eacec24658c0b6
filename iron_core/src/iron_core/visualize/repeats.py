"""Layers that repeat: where a run list goes through the same steps again and again."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import attrs

#: Fewer rows than this are shown as they are.
LEAST = 8


@attrs.frozen
class Stretch:
    """Rows from `start` on: `count` rounds of `length` rows each, which are alike. A count of 1: rows that repeat nothing."""

    start: int
    length: int
    count: int

    @property
    def stop(self) -> int:
        return self.start + self.length * self.count


def repeats(kinds: Sequence[Hashable], fixed: Sequence[int | None] = ()) -> tuple[Stretch, ...]:
    """Stretches that cover a sequence in order: the longest repetition first, then what is before and behind it.

    fixed: per row the layer that it surely is of, where that is known; rounds begin where such numbers change.
    """
    numbered = {kind: n for n, kind in enumerate(dict.fromkeys(kinds))}
    return tuple(_cover([numbered[kind] for kind in kinds], 0, list(fixed)))


def _cover(kinds: list[int], at: int, fixed: list[int | None]) -> list[Stretch]:
    best = _longest(kinds)
    if best is None:
        return [Stretch(at, len(kinds), 1)] if kinds else []
    start, length, run = best
    count = run // length
    start += _phase(fixed[start : start + run], length, run - count * length)
    stop = start + length * count
    before, behind = _cover(kinds[:start], at, fixed[:start]), _cover(kinds[stop:], at + stop, fixed[stop:])
    return [*before, Stretch(at + start, length, count), *behind]


def _longest(kinds: list[int]) -> tuple[int, int, int] | None:
    """(start, period, rows) of the repetition that covers the most rows, of those the one with the shortest period."""
    best: tuple[int, int, int] | None = None
    covered = LEAST - 1
    for period in range(1, len(kinds) // 2 + 1):
        run = 0
        for i in range(len(kinds) - period + 1):
            if i < len(kinds) - period and kinds[i] == kinds[i + period]:
                run += 1
                continue
            rows = run + period
            if run >= period and rows // period * period > covered:
                best, covered = (i - run, period, rows), rows // period * period
            run = 0
    return best


def _phase(fixed: list[int | None], length: int, slack: int) -> int:
    """How many rows to leave before the first round, of as many as are to spare, so that fewest rounds mix two layers."""

    def mixed(shift: int) -> int:
        rounds = (fixed[i : i + length] for i in range(shift, len(fixed) - length + 1, length))
        return sum(len({layer for layer in one if layer is not None}) > 1 for one in rounds)

    return min(range(slack + 1), key=mixed) if fixed else 0
