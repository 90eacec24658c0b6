"""The whole run list at a glance, from left to right: operators, entries, times, and the arena's bytes below them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from iron_core.visualize.flow import arena_uses, shape_text
from iron_core.visualize.markup import size
from iron_core.visualize.repeats import Stretch
from iron_core.visualize.run_list import RunList
from iron_core.visualize.times import Times, duration

#: Everything is drawn this wide, behind a gutter for what lanes are called.
WIDTH, GUTTER = 1180, 92
_OPERATORS, _ENTRIES, _TIMES, _ARENA = 24, 12, 64, 150
#: Bars are cut where they are more than so many times as long as 98 of 100, and there are as many as that.
_ABOVE, _MANY = 2.5, 50


def overview(run: RunList, priced: Times, banks: Sequence[int], hue: Mapping[str, int], stretches: Sequence[Stretch], prefix: str) -> str:
    """SVG of a run list; `style.OVERVIEW` has its colours. prefix: of the ids of the rows that its steps lead to."""
    drawing = _Drawing(run, priced)
    drawing.layers(stretches)
    drawing.operators(hue, prefix)
    if run.entries:
        drawing.entries()
    if priced.known:
        drawing.times()
    if sum(banks):
        drawing.arena(banks, hue)
    return drawing.svg()


class _Drawing:
    def __init__(self, run: RunList, priced: Times) -> None:
        self.run, self.priced = run, priced
        self.step = (WIDTH - GUTTER) / max(len(run.rows), 1)
        self.y = 0.0
        self.parts: list[str] = []

    def x(self, row: int) -> float:
        return GUTTER + self.step * row

    def text(self, x: float, y: float, text: str, kind: str = "soft", anchor: str = "start") -> None:
        self.parts.append(f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>')

    def lane(self, name: str, height: float) -> float:
        """Room below what there is; returns where it begins."""
        y = self.y
        self.text(0, y + 11, name)
        self.y += height + 8
        return y

    def layers(self, stretches: Sequence[Stretch]) -> None:
        """Brackets over what repeats, and numbers of steps."""
        for one in stretches:
            if one.count > 1:
                a, b = self.x(one.start), self.x(one.stop)
                self.parts.append(f'<path class="bracket" d="M{a:.1f} 22V17H{b:.1f}V22"/>')
                self.text((a + b) / 2, 12, f"{one.count} × {one.length} steps", anchor="middle")
                cuts = "".join(f"M{self.x(one.start + one.length * n):.1f} 17v5" for n in range(1, one.count))
                self.parts.append(f'<path class="bracket" d="{cuts}"/>')
        self.y = 26

    def operators(self, hue: Mapping[str, int], prefix: str) -> None:
        y = self.lane("operators", _OPERATORS)
        for row in self.run.rows:
            where = f'x="{self.x(row.number):.2f}" y="{y}" width="{self.step:.2f}" height="{_OPERATORS}"'
            self.parts.append(
                f'<a href="#{prefix}{row.number}"><rect class="step" style="--h:{hue[row.operator]}" {where}>'
                f"<title>{escape(row.title)}</title></rect></a>"
            )

    def entries(self) -> None:
        """Runs of steps that share one configuration of the array, or each step where it is a dispatch of its own: two greys in turn."""
        elf = self.run.image is not None and self.run.image.elf
        y = self.lane("entries" if elf else "dispatches", _ENTRIES)
        for number, steps in enumerate(self.run.entries):
            a, b = self.x(steps[0]), self.x(steps[-1] + 1)
            first = self.run.rows[steps[0]]
            added = f", {duration(self.priced.entries[number])} to enter" if number in self.priced.entries else ""
            says = f"{'entry' if elf else 'dispatch'} {number}: array {first.array}, {len(steps)} step{'s' * (len(steps) != 1)}{added}"
            shade = "even" if number % 2 else "odd"
            self.parts.append(
                f'<rect class="{shade}" x="{a:.2f}" y="{y}" width="{b - a:.2f}" height="{_ENTRIES}"><title>{says}</title></rect>'
            )

    def times(self) -> None:
        """A bar for each step and, on that of an entry's first, what entering takes. Few that are much longer than all others are cut,
        and say how long they are."""
        y = self.lane("time", _TIMES)
        entering = {self.run.entries[n][0]: us for n, us in self.priced.entries.items()}
        whole = {number: us + entering.get(number, 0.0) for number, us in self.priced.us.items()}
        order = sorted(whole.values())
        usual = order[int(0.98 * (len(order) - 1))]
        few = len(order) >= _MANY and order[-1] > _ABOVE * usual > 0
        most = (usual * _ABOVE if few else order[-1]) or 1.0
        self.text(GUTTER - 6, y + 24, f"up to {duration(order[-1])}", anchor="end")
        for number, us in self.priced.us.items():
            name, top = escape(self.run.rows[number].name), y + _TIMES
            for kind, part, says in (("time", us, name), ("enter", entering.get(number, 0.0), f"to enter {name}")):
                tall = min(_TIMES * part / most, top - y)
                if tall or kind == "time":
                    tall = max(tall, 0.3)
                    top -= tall
                    self.parts.append(
                        f'<rect class="{kind}" x="{self.x(number):.2f}" y="{top:.2f}" width="{max(self.step - 0.4, 0.4):.2f}" '
                        f'height="{tall:.2f}"><title>{says}: {duration(part)}</title></rect>'
                    )
            if whole[number] > most:
                side, anchor = (self.step + 3, "start") if self.x(number) < WIDTH / 2 else (-3, "end")
                self.text(self.x(number) + side, y + 10, f"{duration(whole[number])}, cut", anchor=anchor)
        if entering:
            self.text(0, y + 39, "pale: to enter")

    def arena(self, banks: Sequence[int], hue: Mapping[str, int]) -> None:
        """Bytes from top to bottom, bank after bank, as far as this version uses them; a bar is a result, from the step that writes
        it to the last that reads it."""
        uses = arena_uses(self.run)
        tops = [max((use.ref.offset + use.ref.nbytes for use in uses if use.ref.index == n), default=0) for n in range(len(banks))]
        y, total = self.lane("arena", _ARENA), max(sum(tops), 1)
        self.text(0, y + 26, size(total))
        if total < sum(banks):
            self.text(0, y + 41, f"of {size(sum(banks))}")
        self.parts.append(f'<rect class="bytes" x="{GUTTER}" y="{y}" width="{WIDTH - GUTTER}" height="{_ARENA}"/>')
        by = {part: row.operator for row in self.run.rows for part in (row.name, *(one.name for one in row.inside))}
        starts = [sum(tops[:n]) for n in range(len(tops))]
        for use in uses:
            top = y + _ARENA * (starts[use.ref.index] + use.ref.offset) / total
            tall = max(_ARENA * use.ref.nbytes / total, 1)
            rows = f"steps {use.first} to {use.last}" if use.last > use.first else f"step {use.first}"
            says = f"{use.name}: {shape_text(use.ref)}, {rows}, bank {use.ref.index}, bytes {use.ref.offset} on"
            self.parts.append(
                f'<rect class="use" style="--h:{hue[by[use.name]]}" x="{self.x(use.first):.2f}" y="{top:.2f}" '
                f'width="{max(self.step * (use.last - use.first + 1), 0.6):.2f}" height="{tall:.2f}"><title>{escape(says)}</title></rect>'
            )

    def svg(self) -> str:
        count = len(self.run.rows)
        every = next(n for n in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000, 10**9) if self.step * n > 40)
        for n in range(0, count + 1, every):
            self.text(self.x(n), self.y + 8, str(n), anchor="start" if not n else "end" if n == count else "middle")
        return (
            f'<svg class="overview" viewBox="0 0 {WIDTH} {self.y + 14:.0f}" role="img" xmlns="http://www.w3.org/2000/svg" '
            f'aria-label="{count} steps from left to right, with what they keep in the arena">{"".join(self.parts)}</svg>'
        )

