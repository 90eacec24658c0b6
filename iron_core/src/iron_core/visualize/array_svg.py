"""An array as SVG: a grid of tiles, each a box beside its stream switch, and the paths of the fifos through the switches.

A switch's ports towards its neighbours lie side by side, so a line between two switches is one port, and there are as many places
for lines as there are ports.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from iron_core.array.pools import Place
from iron_core.array.router import Channel, Hop
from iron_core.devices import CORE_ROW, MEMORY_ROW
from iron_core.visualize.array_plan import ArrayPlan, Stream, tile_name

#: A cell, its switch (a square in its lower left) and the box of its tile (above the lines that run east and west).
WIDTH, HEIGHT, SWITCH = 152, 118, 56
BOX_X, BOX_WIDTH, BOX_HEIGHT = 62, 84, 44
LEFT, TOP = 58, 18
#: Where the ports of each side begin along it, and how far apart they are.
_LANES = {"north": (4, 5), "south": (36, 5), "east": (5, 6), "west": (32, 6)}
_OPPOSITE = {"north": "south", "south": "north", "east": "west", "west": "east"}

Point = tuple[float, float]


def array_svg(plan: ArrayPlan, title: str) -> str:
    """The picture of a placed array; `style.ARRAY` has its colours. title: what it is called, for those who do not see it."""
    return _Drawing(plan).svg(title)


class _Drawing:
    def __init__(self, plan: ArrayPlan) -> None:
        self.plan = plan
        self.rows = max(row for _, row in plan.tiles) + 1  # what is above holds nothing
        self.colour = {operand: f"o{i % 8}" for i, operand in enumerate(plan.operands)}
        self.beside: dict[tuple[Place, Place], int] = {}

    # -- where things are --------------------------------------------------------------------------

    def corner(self, place: Place) -> Point:
        """Of a cell, its upper left."""
        return LEFT + place[0] * WIDTH, TOP + (self.rows - 1 - place[1]) * HEIGHT

    def switch(self, place: Place) -> Point:
        x, y = self.corner(place)
        return x, y + HEIGHT - SWITCH - 4

    def port(self, place: Place, side: str, number: int, leads: str) -> Point:
        """On the edge of a switch. leads: the direction that its stream goes, which says in which lane it runs."""
        x, y = self.switch(place)
        start, step = _LANES[leads]
        along = start + step * number
        across = {"north": (along, 0), "south": (along, SWITCH), "east": (SWITCH, along), "west": (0, along)}[side]
        return x + across[0], y + across[1]

    def channel(self, end: Channel, way: str) -> Point:
        """Where a DMA channel of a tile's box is."""
        x, y = self.corner(end.place)
        return x + BOX_X + (6 if way == "in" else 48) + 6 * end.number, y + 2 + BOX_HEIGHT

    # -- what is drawn -----------------------------------------------------------------------------

    def svg(self, title: str) -> str:
        width, height = LEFT + self.plan.dev.columns * WIDTH, TOP + self.rows * HEIGHT + 4
        parts = [
            f'<svg class="array" viewBox="0 0 {width} {height}" style="max-width:{width}px" role="img" '
            f'aria-label="{escape(title, quote=True)}" xmlns="http://www.w3.org/2000/svg">'
        ]
        for col in range(self.plan.dev.columns):
            x, _ = self.corner((col, 0))
            parts.append(f'<text class="axis" x="{x + BOX_X + BOX_WIDTH / 2}" y="12" text-anchor="middle">column {col}</text>')
        for row in range(self.rows):
            _, y = self.corner((0, row))
            name = "memory" if row == MEMORY_ROW else "shim" if row < CORE_ROW else f"row {row}"
            parts.append(f'<text class="axis" x="2" y="{y + 26}">{name}</text>')
        parts += [self.tile((col, row)) for row in range(self.rows) for col in range(self.plan.dev.columns)]
        parts += map(self.stream, self.plan.streams)
        return "\n".join([*filter(None, parts), "</svg>"])

    def tile(self, place: Place) -> str:
        (x, y), (sx, sy) = self.corner(place), self.switch(place)
        box = f'x="{x + BOX_X}" y="{y + 2}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="4"'
        square = f'<rect class="switch" x="{sx}" y="{sy}" width="{SWITCH}" height="{SWITCH}" rx="6"/>'
        if place not in self.plan.tiles:
            return f'{square}<rect class="free" {box}/>'
        kind = "core" if place[1] >= CORE_ROW else "mem" if place[1] == MEMORY_ROW else "shim"
        name, held = tile_name(self.plan, place), self.plan.held.get(place)
        calls = tuple(dict.fromkeys(call for tile in self.plan.tiles[place] for call in self.plan.kernels(tile)))
        said = [f"{name} at column {place[0]}, row {place[1]} ({', '.join(self.plan.tiles[place])})"]
        said += [f"calls {', '.join(calls)}"] if calls else []
        size = "name" if len(name) < 12 else "name long"
        parts = [square, f'<rect class="{kind}" {box}/>', _text(x + BOX_X + 5, y + 14, _cut(name, 15), size)]
        if calls:
            parts.append(_text(x + BOX_X + 5, y + 26, _cut(", ".join(calls), 15), "small"))
        if held is not None:
            full = (BOX_WIDTH - 10) * min(held.used / held.there, 1)
            where = f'x="{x + BOX_X + 5}" y="{y + 33}" height="5" rx="2"'
            parts.append(f'<rect class="empty" {where} width="{BOX_WIDTH - 10}"/><rect class="full" {where} width="{full:.1f}"/>')
            said.append(f"holds {held.used} of {held.there} bytes: {held.listed}")
        return f"<g><title>{escape(chr(10).join(said))}</title>{''.join(parts)}</g>"

    def stream(self, stream: Stream) -> str:
        colour = self.colour.get(stream.operand, "inner")
        lines = list(self.shared(stream) if stream.path is None else self.segments(stream))
        if not lines:
            return ""
        path = "".join(f"M{a[0]:g} {a[1]:g}L{b[0]:g} {b[1]:g}" for a, b in lines)
        marks = ""
        if stream.path is not None:
            for end in stream.path.flow.sinks:
                x, y = self.channel(end, "in")
                marks += f"M{x - 3:g} {y + 5:g}h6L{x:g} {y:g}z"
            x, y = self.channel(stream.path.flow.source, "out")
            marks += f"M{x - 2.5:g} {y:g}h5v4h-5z"
        ends = f'<path class="end" d="{marks}"/>' if marks else ""
        near = "" if stream.path is not None else " near"
        return f'<g class="stream {colour}{near}"><title>{escape(stream.title)}</title><path d="{path}"/>{ends}</g>'

    def segments(self, stream: Stream) -> Iterator[tuple[Point, Point]]:
        """The pieces of a path: inside each switch from where it comes in to each side that it leaves by, and between switches."""
        assert stream.path is not None
        flow, hops = stream.path.flow, stream.path.hops
        into: dict[Place, Point] = {flow.source.place: self.channel(flow.source, "out")}
        for hop in hops:
            into[hop.to] = self.port(hop.to, _OPPOSITE[hop.direction], hop.port, hop.direction)
        for hop in hops:
            out = self.leaving(hop)
            yield into[hop.place], out
            yield out, into[hop.to]
        for sink in flow.sinks:
            yield into[sink.place], self.channel(sink, "in")

    def leaving(self, hop: Hop) -> Point:
        return self.port(hop.place, hop.direction, hop.port, hop.direction)

    def shared(self, stream: Stream) -> Iterator[tuple[Point, Point]]:
        """From box to box, where neighbours use one memory."""
        here, there = (self.plan.placement[tile] for tile in (stream.source, stream.targets[0]))
        if here == there:
            return
        low, high = sorted((here, there), key=lambda place: (place[1], place[0]))
        n = self.beside[low, high] = self.beside.get((low, high), -1) + 1
        (x, y), (far_x, far_y) = self.corner(low), self.corner(high)
        if low[0] == high[0]:
            at = x + BOX_X + BOX_WIDTH - 6 - 5 * n
            yield (at, y + 2), (at, far_y + 2 + BOX_HEIGHT)
        else:
            left, right = (x, far_x) if x < far_x else (far_x, x)
            at = y + 8 + 5 * n
            yield (left + BOX_X + BOX_WIDTH, at), (right + BOX_X, at)


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x}" y="{y}">{escape(text)}</text>'


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
