"""What a picture says of an array: its fifos with their paths, whose data they carry, and what its tiles hold."""

from __future__ import annotations

import re
from collections.abc import Iterator

import attrs

from iron_core.array.design import ArrayDesign, FifoData
from iron_core.array.memory import TileMemory, memory
from iron_core.array.pools import FifoPools, Place, TilePlacement, fifo_pools
from iron_core.array.program import Block, Call, For, If
from iron_core.array.router import Route, route
from iron_core.devices import CORE_ROW, Device, device
from iron_core.errors import Unresolvable

#: What a kernel's symbol ends with: a digest of its sources and its arguments.
DIGEST = re.compile(r"_[0-9a-f]{8,}$")


@attrs.frozen(eq=False)
class Stream:
    """A fifo, or a control flow, on its way. operand: whose data it carries; "" for what stays between cores. path: None where the
    ends share a tile's memory."""

    name: str
    operand: str
    kind: str
    depth: str
    nbytes: int
    source: str
    targets: tuple[str, ...]
    path: Route | None
    link: str = ""

    @property
    def how(self) -> str:
        """By what its objects move."""
        return "shared memory" if self.path is None else f"DMA, {len(self.path.hops)} hop{'s' * (len(self.path.hops) != 1)}"

    @property
    def title(self) -> str:
        lines = [f"{self.name}: {self.kind}, depth {self.depth}" if self.kind else self.name]
        lines += [f"carries {self.operand}"] if self.operand else []
        lines += [f"from {self.source} to {', '.join(self.targets)}", self.how]
        return "\n".join([*lines, *filter(None, [self.link])])


@attrs.frozen(eq=False)
class ArrayPlan:
    """An array where its tiles are. tiles: by place, the names of those there (two may share one). held: what they hold, by place.
    unrouted: why no path was found; then streams have none."""

    array: ArrayDesign
    dev: Device
    tiles: dict[Place, tuple[str, ...]]
    streams: tuple[Stream, ...]
    held: dict[Place, TileMemory]
    placement: TilePlacement
    unrouted: str = ""

    @property
    def operands(self) -> tuple[str, ...]:
        """Those that its lanes carry, in the order of their first lane."""
        return tuple(dict.fromkeys(lane.operand for lane in self.array.lanes))

    def kernels(self, tile: str) -> tuple[str, ...]:
        """What the core of a tile calls, by its symbols without their digests: what is in the most loops first."""
        core = self.array.core_at(tile)
        calls = sorted(_calls(core.program) if core else (), key=lambda call: -call[0])
        return tuple(dict.fromkeys(DIGEST.sub("", name) for _, name in calls))


def _calls(block: Block, loops: int = 0) -> Iterator[tuple[int, str]]:
    """How many loops each call is in, and its kernel."""
    for statement in block:
        if isinstance(statement, Call):
            yield loops, statement.kernel
        elif isinstance(statement, For):
            yield from _calls(statement.body, loops + 1)
        elif isinstance(statement, If):
            yield from _calls((*statement.then, *statement.otherwise), loops)


def array_plan(array: ArrayDesign, placement: TilePlacement) -> ArrayPlan:
    """The plan of a placed array."""
    dev = device(array.dev)
    pools = fifo_pools(array, placement)
    try:
        paths, why = {one.flow.name: one for one in route(array, placement, dev)}, ""
    except Unresolvable as error:
        paths, why = {}, str(error)
    tiles: dict[Place, list[str]] = {}
    for tile in array.tiles:
        tiles.setdefault(placement[tile.name], []).append(tile.name)
    held = {placement[one.tile]: one for one in memory(array, dev, pools, placement)}
    carried = operands_of(array)
    streams = [_stream(array, fifo, paths.get(fifo.name), carried.get(fifo.name, ""), pools) for fifo in array.fifos]
    streams += [
        Stream(one.name, carried.get(one.fifo, ""), "control packets", "-", 0, one.source, (one.target,), paths.get(one.name))
        for one in array.controls
    ]
    return ArrayPlan(array, dev, {place: tuple(names) for place, names in tiles.items()}, tuple(streams), held, placement, why)


def operands_of(array: ArrayDesign) -> dict[str, str]:
    """By fifo, the operand whose elements it carries: those of lanes, and what memory tiles join with them or make of them."""
    found = {lane.fifo: lane.operand for lane in array.lanes}
    known = -1
    while known != len(found):
        known = len(found)
        for link in array.links:
            names = (*link.sources, *link.targets)
            operand = next((found[name] for name in names if name in found), None)
            if operand is not None:
                for name in names:
                    found.setdefault(name, operand)
    return found


def _stream(array: ArrayDesign, fifo: FifoData, path: Route | None, operand: str, pools: FifoPools) -> Stream:
    ends = [end for end in pools.ends if end.fifo == fifo.name]
    depths = list(dict.fromkeys(end.depth for end in ends if end.pool))
    link = "; ".join(f"{link.kind} on {link.tile}" for link in array.links if fifo.name in (*link.sources, *link.targets))
    depth = " and ".join(map(str, depths)) or "-"
    return Stream(fifo.name, operand, str(fifo.type), depth, fifo.type.nbytes, fifo.producer, fifo.consumers, path, link)


def same_but_for_numbers(plan: ArrayPlan) -> Iterator[list[Stream]]:
    """Streams in groups of those that differ by the numbers in their names alone: the parts of one pattern."""
    groups: dict[tuple[str, ...], list[Stream]] = {}
    for stream in plan.streams:
        ends = tuple(_numberless(name) for name in (stream.name, stream.source, *stream.targets[:1]))
        alike = (*ends, stream.kind, stream.depth, stream.operand, str(len(stream.targets)), stream.link.partition(" ")[0])
        groups.setdefault(alike, []).append(stream)
    yield from groups.values()


def _numberless(name: str) -> str:
    return re.sub(r"\d+", "*", name)


def tile_name(plan: ArrayPlan, place: Place) -> str:
    """What a tile in use is called: its worker's name, "memory" or "shim"."""
    names = plan.tiles[place]
    core = plan.array.core_at(names[0])
    if core is not None:
        return core.name
    return "memory" if place[1] == CORE_ROW - 1 else "shim" if place[1] < CORE_ROW else names[0]
