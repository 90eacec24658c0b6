"""Paths of an array's streams through the stream switches of its tiles.

Each fifo that DMAs carry is one circuit, from its producer's channel to those of all its consumers; where it branches, one
port feeds several. A switch has so many ports towards each neighbour. Streams are laid one after the other, each the
shortest way in what ports cost; ports that too many want grow dearer from round to round, until none is wanted by more
streams than it has.

Memory tiles have no ports east or west, and what passes through one north or south keeps its port number.
"""

from __future__ import annotations

import contextlib
import heapq

import attrs

from iron_core.array.design import ArrayDesign
from iron_core.array.placer import place
from iron_core.array.pools import Place, TilePlacement, fifo_pools
from iron_core.devices import CORE_ROW, MEMORY_ROW, PORTS, Device
from iron_core.errors import Unresolvable

_STEPS = {"north": (0, 1), "south": (0, -1), "east": (1, 0), "west": (-1, 0)}
_ROUNDS = 60

#: A switch and the direction of one of its neighbours: what so many ports lead to.
Side = tuple[Place, str]


@attrs.frozen
class Channel:
    """A place where a stream starts or ends. `kind`: "dma", or "control" for a tile's control port."""

    place: Place
    kind: str
    number: int


@attrs.frozen
class Flow:
    """A stream by the name of its fifo or control flow."""

    name: str
    source: Channel
    sinks: tuple[Channel, ...]


@attrs.frozen
class Hop:
    """From a switch to its neighbour in a direction, by port `port` of that side."""

    place: Place
    direction: str
    port: int

    @property
    def to(self) -> Place:
        return _next(self.place, self.direction)


@attrs.frozen
class Route:
    """The tree of hops of one stream; a hop comes after the one it continues."""

    flow: Flow
    hops: tuple[Hop, ...]


def flows(design: ArrayDesign, placement: TilePlacement) -> tuple[Flow, ...]:
    """The streams of a placed array, in the order of its fifos."""
    found = fifo_pools(design, placement)
    ends: dict[str, list[Channel]] = {}
    for end in found.ends:
        if end.way:
            ends.setdefault(end.fifo, []).append(Channel(placement[end.tile], "dma", end.channel))
    streams = [Flow(name, one[0], tuple(one[1:])) for name, one in ends.items()]
    for control in design.controls:
        source = Channel(placement[control.source], "dma", 0)
        streams.append(Flow(control.name, source, (Channel(placement[control.target], "control", 0),)))
    return tuple(streams)


def route(design: ArrayDesign, placement: TilePlacement, dev: Device) -> tuple[Route, ...]:
    """A path for every stream. Unresolvable where there is none, naming a stream and the switch whose ports ran out."""
    return _Router(dev, flows(design, placement), design.name).run()


def place_and_route(design: ArrayDesign, dev: Device) -> tuple[dict[str, Place], tuple[Route, ...]]:
    """Places, and paths between them; where the ports do not suffice, with the cores spread over more columns."""
    placement = place(design, dev)
    try:
        return placement, route(design, placement, dev)
    except Unresolvable as error:
        for rows in range(dev.core_rows - 1, 0, -1):
            with contextlib.suppress(Unresolvable):
                placement = place(design, dev, rows)
                return placement, route(design, placement, dev)
        raise error


def _next(place: Place, direction: str) -> Place:
    col, row = _STEPS[direction]
    return place[0] + col, place[1] + row


class _Router:
    def __init__(self, dev: Device, streams: tuple[Flow, ...], name: str) -> None:
        self.streams, self.name, self.dev = streams, name, dev
        rows = CORE_ROW + dev.core_rows
        self.neighbours: dict[Place, list[tuple[Side, Place]]] = {}
        for col in range(dev.columns):
            for row in range(rows):
                here = (col, row)
                for direction in PORTS:
                    there = _next(here, direction)
                    sideways = direction in ("east", "west")
                    if 0 <= there[0] < dev.columns and 0 <= there[1] < rows and not (sideways and row == MEMORY_ROW):
                        self.neighbours.setdefault(here, []).append(((here, direction), there))
        self.users: dict[Side, set[int]] = {side: set() for sides in self.neighbours.values() for side, _ in sides}
        self.dear: dict[Side, float] = dict.fromkeys(self.users, 0.0)
        self.paths: list[list[Side]] = [[] for _ in streams]

    def run(self) -> tuple[Route, ...]:
        weight = 0.5
        for _ in range(_ROUNDS):
            for i, stream in enumerate(self.streams):
                for side in self.paths[i]:
                    self.users[side].discard(i)
                self.paths[i] = self.lay(stream, weight)
                for side in self.paths[i]:
                    self.users[side].add(i)
            full = [side for side, users in self.users.items() if len(users) > PORTS[side[1]]]
            if not full:
                return self.numbered()
            for side in full:
                self.dear[side] += len(self.users[side]) - PORTS[side[1]]
            weight = min(weight * 1.5, 1000.0)
        raise self.refusal(full)

    def price(self, side: Side, weight: float) -> float:
        over = len(self.users[side]) + 1 - PORTS[side[1]]
        return 1.0 + self.dear[side] + (weight * over if over > 0 else 0.0)

    def lay(self, stream: Flow, weight: float) -> list[Side]:
        """A tree to all sinks: each sink joined by the cheapest way from what is laid already."""
        laid: list[Side] = []
        tree = {stream.source.place}
        wanted = {sink.place for sink in stream.sinks} - tree
        while wanted:
            for side, there in self.cheapest(tree, wanted, weight):
                laid.append(side)
                tree.add(there)
            wanted -= tree
        return laid

    def cheapest(self, tree: set[Place], wanted: set[Place], weight: float) -> list[tuple[Side, Place]]:
        cost = dict.fromkeys(tree, 0.0)
        came: dict[Place, tuple[Side, Place]] = {}
        heap = [(0.0, here) for here in sorted(tree)]
        while heap:
            so_far, here = heapq.heappop(heap)
            if so_far > cost[here]:
                continue
            if here in wanted:
                path = []
                while here not in tree:
                    side, _ = came[here]
                    path.append((side, here))
                    here = side[0]
                return path[::-1]
            for side, there in self.neighbours.get(here, ()):
                total = so_far + self.price(side, weight)
                if total < cost.get(there, float("inf")):
                    cost[there] = total
                    came[there] = (side, here)
                    heapq.heappush(heap, (total, there))
        raise AssertionError("switches are connected")

    def refusal(self, full: list[Side]) -> Unresolvable:
        side = max(full, key=lambda one: (len(self.users[one]) - PORTS[one[1]], one))
        (col, row), direction = side
        names = [self.streams[i].name for i in sorted(self.users[side])]
        return Unresolvable(
            f"{self.name}: no path is left for stream {names[-1]}: the switch of column {col}, row {row} has "
            f"{PORTS[direction]} ports {direction} and {len(names)} streams want them ({', '.join(names)}). "
            "Pin fewer tiles, use fewer channels, or join streams on memory tiles."
        )

    def numbered(self) -> tuple[Route, ...]:
        """Ports: first of what passes a memory tile, which keeps its number, then of all others."""
        ports: dict[tuple[Side, int], int] = {}
        used: dict[Side, set[int]] = {side: set() for side in self.users}

        def give(i: int, *sides: Side) -> None:
            free = next(n for n in range(PORTS[sides[0][1]]) if not any(n in used[side] for side in sides))
            for side in sides:
                ports[side, i] = free
                used[side].add(free)

        for i, path in enumerate(self.paths):
            sides = set(path)
            for here, direction in path:
                onward = (_next(here, direction), direction)
                if onward[0][1] == MEMORY_ROW and onward in sides:
                    give(i, (here, direction), onward)
        for i, path in enumerate(self.paths):
            for side in path:
                if (side, i) not in ports:
                    give(i, side)
        return tuple(
            Route(stream, tuple(Hop(*side, ports[side, i]) for side in self.paths[i])) for i, stream in enumerate(self.streams)
        )
