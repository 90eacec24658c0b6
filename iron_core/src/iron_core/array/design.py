"""Designs: frozen, hashable, printable data. An `ArrayDesign` is what is built; a `Design` adds how it is driven."""

from __future__ import annotations

from typing import Any

import attrs

from iron_core.array.kernel import KernelData
from iron_core.array.program import Block
from iron_core.array.sequence import Sequence
from iron_core.declare.objects import ObjectType

#: (size, stride) pairs in elements, outermost first: an order of the elements of one object.
StreamDims = tuple[tuple[int, int], ...]


@attrs.frozen
class TileData:
    """A tile and as much of its place as is fixed. `kind`: "shim", "mem" or "core"."""

    name: str
    kind: str
    col: int | None = None
    row: int | None = None


@attrs.frozen
class FifoData:
    """An object fifo from one tile to one or several.

    depth: one number, or one per end (producer first). to_stream: the order in which the producer's DMA reads an object;
    from_stream: per consumer, the order in which its DMA writes one. repeat: how often each object is sent. pad: per
    to_stream dimension, elements inserted before and after. consumer_type: where consumers see other objects.
    """

    name: str
    type: ObjectType
    depth: int | tuple[int, ...]
    producer: str
    consumers: tuple[str, ...]
    to_stream: StreamDims = ()
    from_stream: tuple[StreamDims, ...] = ()
    repeat: int = 1
    via_dma: bool = False
    pad: tuple[tuple[int, int], ...] = ()
    pad_value: int = 0
    init: tuple[tuple[int | float, ...], ...] = ()
    consumer_type: ObjectType | None = None

    def ends(self) -> tuple[str, ...]:
        """The tile of every end, the producer's first."""
        return (self.producer, *self.consumers)

    def type_at(self, end: int) -> ObjectType:
        """Objects at an end (0: the producer)."""
        return self.type if end == 0 or self.consumer_type is None else self.consumer_type


@attrs.frozen
class LinkData:
    """Objects that pass through a memory tile: one source to one target (forward), one to many at offsets (split), or many
    to one (join). Offsets in elements of the larger object."""

    tile: str
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    offsets: tuple[int, ...] = ()

    @property
    def kind(self) -> str:
        """"forward", "split" or "join"."""
        if len(self.sources) > 1 or (self.offsets and len(self.targets) == 1):
            return "join"
        return "split" if self.offsets else "forward"


@attrs.frozen
class BufferData:
    """Local memory of a core. written: the runtime sequence writes its words."""

    name: str
    tile: str
    type: ObjectType
    initial: tuple[int | float, ...] = ()
    written: bool = False


@attrs.frozen
class LockData:
    """A counting semaphore of a tile. `kind`: "lock", or "barrier" for one that the sequence sets."""

    name: str
    tile: str
    initial: int = 0
    kind: str = "lock"


@attrs.frozen
class CoreData:
    """A worker: its tile, stack in bytes, and program. forever: the program starts over when it ends."""

    name: str
    tile: str
    stack: int
    program: Block
    forever: bool = True


@attrs.frozen
class LaneData:
    """Lane `index` of an operand enters or leaves the array through this fifo (or enters by this control flow)."""

    operand: str
    index: int
    fifo: str


@attrs.frozen
class ValueData:
    """Where cores read a derived value: (buffer, index of its number) each."""

    name: str
    words: tuple[tuple[str, int], ...]


@attrs.frozen
class ControlData:
    """A stream of control packets from a shim tile into another's control port (see `iron_core.array.gather`).

    The packets drive reading channel `channel` of `target`, the producing end of `fifo`.
    """

    name: str
    source: str
    target: str
    fifo: str
    channel: int


@attrs.frozen(cache_hash=True)
class ArrayDesign:
    """What one array key builds on a device. No extent of any operator is in it."""

    name: str
    dev: str
    tiles: tuple[TileData, ...]
    fifos: tuple[FifoData, ...]
    links: tuple[LinkData, ...]
    buffers: tuple[BufferData, ...]
    locks: tuple[LockData, ...]
    kernels: tuple[KernelData, ...]
    cores: tuple[CoreData, ...]
    lanes: tuple[LaneData, ...]
    values: tuple[ValueData, ...]
    controls: tuple[ControlData, ...] = ()

    # By name; KeyError where there is none.

    def tile(self, name: str) -> TileData:
        return _named(self.tiles, name)

    def fifo(self, name: str) -> FifoData:
        return _named(self.fifos, name)

    def buffer(self, name: str) -> BufferData:
        return _named(self.buffers, name)

    def kernel(self, symbol: str) -> KernelData:
        return {kernel.symbol: kernel for kernel in self.kernels}[symbol]

    def core_at(self, tile: str) -> CoreData | None:
        """The worker of a tile."""
        return next((core for core in self.cores if core.tile == tile), None)

    def lanes_of(self, operand: str) -> tuple[LaneData, ...]:
        """The lanes of an operand, in order."""
        return tuple(sorted((lane for lane in self.lanes if lane.operand == operand), key=lambda lane: lane.index))


@attrs.frozen(cache_hash=True)
class Design:
    """An array and the sequence that drives it for one set of extents and one set of per-call members."""

    array: ArrayDesign
    sequence: Sequence


def _named(items: tuple[Any, ...], name: str) -> Any:
    for item in items:
        if item.name == name:
            return item
    raise KeyError(name)
