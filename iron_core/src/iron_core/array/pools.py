"""What every fifo becomes on its tiles: pools of objects with their locks, and DMA channels with their descriptors.

A fifo between cores that reach one memory is one pool. Any other is cut in two or more: each end on a core or memory tile
has a pool of its own, and DMAs carry objects between them. A link's ends share the one pool of its memory tile, whose
objects are the larger of both sides; a join or split has a pair of locks for every part.

`placement` maps tile names to (column, row); without it only what is pinned is known to be near.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping

import attrs

from iron_core.array.design import ArrayDesign, FifoData, LinkData, StreamDims
from iron_core.array.program import Acquire, walk
from iron_core.declare.objects import ObjectType
from iron_core.devices import CORE_ROW

Place = tuple[int, int]
TilePlacement = Mapping[str, Place]


@attrs.frozen
class Pool:
    """`depth` objects in one tile's memory, used in turn.

    parts: (offset, elements) of what is handed over on its own, with a pair of locks each: the whole object, or a join's or
    split's parts. initial: how many objects are full from the start. repeat: how often each full object is sent.
    """

    name: str
    tile: str
    type: ObjectType
    depth: int
    parts: tuple[tuple[int, int], ...]
    initial: int = 0
    repeat: int = 1

    @property
    def nbytes(self) -> int:
        return self.depth * self.type.nbytes

    @property
    def locks(self) -> int:
        return 2 * len(self.parts)


@attrs.frozen
class End:
    """One end of a fifo (number 0: the producer's).

    pool: the objects it uses, "" on a shim. way: its DMA's direction, "out" of the tile or "in", "" where the ends share
    memory. channel: the first free one of its tile and direction, in the order of the fifos; control flows have theirs. part:
    which part of the pool's objects its DMA moves, None: all of them in turn. dims: the order of its DMA within what one
    descriptor moves. descriptors: static ones it takes on its tile.
    """

    fifo: str
    number: int
    tile: str
    pool: str
    depth: int
    type: ObjectType
    way: str = ""
    channel: int = 0
    part: int | None = None
    dims: StreamDims = ()
    descriptors: int = 0

    @property
    def port(self) -> str:
        return "consume" if self.number else "produce"

    @property
    def nbytes(self) -> int:
        """Of one object as this end sees it."""
        return self.type.nbytes


@attrs.frozen
class FifoPools:
    """All pools of an array's fifos, and the fifos' ends."""

    pools: tuple[Pool, ...]
    ends: tuple[End, ...]

    def pool(self, name: str) -> Pool:
        return next(pool for pool in self.pools if pool.name == name)

    def end(self, fifo: str, number: int) -> End:
        return next(end for end in self.ends if (end.fifo, end.number) == (fifo, number))

    def pool_of(self, end: End) -> Pool | None:
        """None on a shim."""
        return self.pool(end.pool) if end.pool else None


def link_of(design: ArrayDesign, fifo: FifoData, number: int) -> LinkData | None:
    """The link that this end of a fifo belongs to."""
    for link in design.links:
        names = link.sources if number else link.targets
        if fifo.name in names and fifo.ends()[number] == link.tile:
            return link
    return None


def reaches(core: Place, memory: Place) -> bool:
    """Can a core read and write another core tile's memory? It reaches its own and its south, north and west neighbours'."""
    (col, row), (mem_col, mem_row) = core, memory
    if min(row, mem_row) < CORE_ROW:
        return False
    return (mem_col == col and abs(mem_row - row) <= 1) or (mem_col == col - 1 and mem_row == row)


def place_of(design: ArrayDesign, tile: str, placement: TilePlacement | None = None) -> Place | None:
    """Where a tile is, as far as that is known."""
    if placement is not None and tile in placement:
        return placement[tile]
    data = design.tile(tile)
    return None if data.col is None or data.row is None else (data.col, data.row)


def shared_on(design: ArrayDesign, fifo: FifoData, placement: TilePlacement | None = None) -> str | None:
    """The tile in whose memory both ends of a fifo use the same objects; None where DMAs carry them."""
    if not may_share(design, fifo):
        return None
    producer, consumer = fifo.producer, fifo.consumers[0]
    if producer == consumer:
        return producer
    here, there = place_of(design, producer, placement), place_of(design, consumer, placement)
    if here is None or there is None:
        return None
    if reaches(there, here):
        return producer
    return consumer if reaches(here, there) else None


def may_share(design: ArrayDesign, fifo: FifoData) -> bool:
    """Would this fifo need no DMA if its tiles were memory neighbours?"""
    transformed = fifo.to_stream or any(fifo.from_stream) or fifo.via_dma or fifo.repeat != 1 or fifo.pad
    if transformed or fifo.consumer_type is not None or len(fifo.consumers) != 1:
        return False
    return all(design.tile(tile).kind == "core" for tile in fifo.ends())


def declared_depth(fifo: FifoData, number: int) -> int:
    """Objects at an end (0: the producer's), as the fifo says."""
    return fifo.depth if isinstance(fifo.depth, int) else fifo.depth[number]


@functools.lru_cache(maxsize=64)
def _acquired(design: ArrayDesign) -> Mapping[tuple[str, str], int]:
    """By fifo and tile the most objects that the tile's core asks for at once."""
    found: dict[tuple[str, str], int] = {}
    for core in design.cores:
        for statement in walk(core.program):
            if isinstance(statement, Acquire):
                key = statement.fifo, core.tile
                found[key] = max(found.get(key, 0), statement.count)
    return found


def largest_acquire(design: ArrayDesign, fifo: str, tile: str) -> int:
    """The most objects of a fifo that the tile's core asks for at once; 0 where it asks for none."""
    return _acquired(design).get((fifo, tile), 0)


def end_depth(design: ArrayDesign, fifo: FifoData, number: int) -> int:
    """Objects of a fifo's end that has a pool of its own.

    One depth per end is taken as given. One for the whole fifo is what memory tiles hold; a core holds one more than the
    most it acquires, so that the DMA works ahead, or one if the fifo has one.
    """
    declared = declared_depth(fifo, number)
    tile = fifo.ends()[number]
    if not isinstance(fifo.depth, int) or design.tile(tile).kind != "core" or (fifo.init and number == 0):
        return declared
    most = largest_acquire(design, fifo.name, tile)
    return declared if most == 0 or (most == 1 and declared == 1) else most + 1


def fifo_pools(design: ArrayDesign, placement: TilePlacement | None = None) -> FifoPools:
    """The pools and ends of an array, in the order of its fifos."""
    pools: dict[str, Pool] = {}
    ends: list[End] = []
    taken: dict[tuple[Place | str, str], set[int]] = {}
    pinned = {control.fifo: control.channel for control in design.controls}
    for control in design.controls:
        # Control words leave by the first channel of their shim; packets drive a given one of the other.
        for tile, channel in ((control.source, 0), (control.target, control.channel)):
            taken.setdefault((place_of(design, tile, placement) or tile, "out"), set()).add(channel)
    for fifo in design.fifos:
        near = shared_on(design, fifo, placement)
        if near is not None:
            kind, depth = fifo.type, declared_depth(fifo, 0)
            pools[fifo.name] = Pool(fifo.name, near, kind, depth, ((0, kind.elements),), len(fifo.init))
            ends += [End(fifo.name, n, tile, fifo.name, depth, kind) for n, tile in enumerate(fifo.ends())]
            continue
        for number, tile in enumerate(fifo.ends()):
            way = "in" if number else "out"
            pool, part = _pool(design, fifo, number)
            if pool is not None:
                pools.setdefault(pool.name, pool)
            key = (place_of(design, tile, placement) or tile, way)
            used = taken.setdefault(key, set())
            channel = next(n for n in itertools.count() if n not in used)
            if number == 0 and fifo.name in pinned:
                channel = pinned[fifo.name]
            used.add(channel)
            ends.append(
                End(
                    fifo.name,
                    number,
                    tile,
                    pool.name if pool else "",
                    pool.depth if pool else declared_depth(fifo, number),
                    fifo.type_at(number),
                    way,
                    channel,
                    part,
                    fifo.to_stream if number == 0 else (fifo.from_stream[number - 1] if fifo.from_stream else ()),
                    _descriptors(pool, part, fifo.repeat if number == 0 else 1) if pool else 0,
                )
            )
    return FifoPools(tuple(pools.values()), tuple(ends))


def _descriptors(pool: Pool, part: int | None, repeat: int) -> int:
    """One per object and part it moves, again for each repeat, unless the channel itself can repeat a single one."""
    moved = len(pool.parts) if part is None else 1
    if pool.depth == 1 and len(pool.parts) == 1:
        return 1
    return pool.depth * moved * repeat


def _pool(design: ArrayDesign, fifo: FifoData, number: int) -> tuple[Pool | None, int | None]:
    """The pool of an end that DMAs serve, and which part of its objects is this end's (None: all)."""
    tile = fifo.ends()[number]
    if design.tile(tile).kind == "shim":
        return None, None
    link = link_of(design, fifo, number)
    if link is not None:
        return _link_pool(design, link), _part(link, fifo.name)
    kind = fifo.type_at(number)
    name = pool_name(fifo, number)
    initial, repeat = (0, 1) if number else (len(fifo.init), fifo.repeat)
    return Pool(name, tile, kind, end_depth(design, fifo, number), ((0, kind.elements),), initial, repeat), None


def pool_name(fifo: FifoData, number: int) -> str:
    """What an end's own pool is called."""
    if number == 0:
        return fifo.name
    return f"{fifo.name}_cons" if len(fifo.consumers) == 1 else f"{fifo.name}_{number - 1}_cons"


def _part(link: LinkData, fifo: str) -> int | None:
    if link.kind == "split" and fifo in link.targets:
        return link.targets.index(fifo)
    if link.kind == "join" and fifo in link.sources:
        return link.sources.index(fifo)
    return None


def _link_pool(design: ArrayDesign, link: LinkData) -> Pool:
    """The pool of a link: a join's target, a split's source, a forward's larger side (the source if equal or padded on)."""
    sources = [design.fifo(name) for name in link.sources]
    targets = [design.fifo(name) for name in link.targets]
    source, target = sources[0], targets[0]
    into = 1 + source.consumers.index(link.tile)
    arriving = source.type_at(into)
    larger = target.type.elements > arriving.elements and not target.pad
    owner_is_target = link.kind == "join" or (link.kind == "forward" and (larger or bool(target.init)))
    owner, number = (target, 0) if owner_is_target else (source, into)
    kind = owner.type_at(number)
    # A part reaches to where the next one starts.
    starts = link.offsets if link.kind != "forward" and link.offsets else (0,)
    ends = (*starts[1:], kind.elements)
    initial = len(target.init) if owner_is_target else 0
    parts = tuple((start, end - start) for start, end in zip(starts, ends, strict=True))
    return Pool(pool_name(owner, number), link.tile, kind, end_depth(design, owner, number), parts, initial, target.repeat)
