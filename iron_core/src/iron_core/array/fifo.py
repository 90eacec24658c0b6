"""`ObjectFifo`: objects that go, in order, from one tile to one or several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from iron_core.array.builder import builder
from iron_core.array.program import Acquire, Element, Release
from iron_core.array.recording import MemoryHandle, recorder
from iron_core.array.tile import Lane, Tile, as_tile
from iron_core.declare.objects import ObjectType
from iron_core.errors import DeclarationError


def _type(given: Any) -> ObjectType:
    if isinstance(given, ObjectType):
        return given
    if not isinstance(given, tuple) or len(given) != 2:
        raise DeclarationError(f"a fifo of {given!r}; legal: an ObjectType, such as an operand's tile, or (shape, dtype).")
    return ObjectType.of(*given)


class ObjectFifoHandle:
    """One end of a fifo. In a core function it acquires and releases objects; `tile` says where it is."""

    port = ""

    def __init__(self, fifo: ObjectFifo, depth: int | None, tile: Tile | Lane | None, number: int, dims: Any = ()) -> None:
        self.fifo = fifo
        self.depth = depth
        self.number = number
        self.dims = _dims(dims)
        self.lane: Lane | None = None
        self.tile: Tile | None = None
        self._place(tile)

    def _place(self, tile: Tile | Lane | None) -> None:
        if isinstance(tile, Lane):
            self.lane = tile
            self.tile = tile.tile or Tile("shim")
        else:
            self.tile = as_tile(tile, f"fifo {self.fifo.name}")

    def _memory(self, tile: Any) -> Tile:
        """The memory tile of a link that begins or ends here."""
        return as_tile(tile, f"fifo {self.fifo.name}") or Tile("mem")

    def settle(self, tile: Tile, what: str) -> None:
        """Put this end on a tile; DeclarationError if it is on another already."""
        if self.tile is not None and self.tile is not tile:
            raise DeclarationError(f"fifo {self.fifo.name}: its {self.port} end is used by {what} and elsewhere already.")
        self.tile = tile

    def acquire(self, count: int = 1) -> Any:
        """Hold `count` objects: one as a memory handle, several as a list, the oldest first."""
        if count < 1:
            raise DeclarationError(f"fifo {self.fifo.name}: acquire({count}); legal: at least 1.")
        active = recorder()
        active.owns(self)
        name = active.name("a")
        active.add(Acquire(name, self.fifo.name, self.port, count))
        kind = self.fifo.type if self.port == "produce" else (self.fifo.consumer_type or self.fifo.type)
        held = [MemoryHandle(Element(name, i, kind)) for i in range(count)]
        return held[0] if count == 1 else held

    def release(self, count: int = 1) -> None:
        """Give the `count` oldest objects held on."""
        if count < 1:
            raise DeclarationError(f"fifo {self.fifo.name}: release({count}); legal: at least 1.")
        active = recorder()
        active.owns(self)
        active.add(Release(self.fifo.name, self.port, count))

    def __repr__(self) -> str:
        return f"{self.fifo.name}.{self.port}"


class Producer(ObjectFifoHandle):
    """The end that fills objects."""

    port = "produce"

    def join(
        self,
        offsets: Sequence[int],
        types: Sequence[Any],
        *,
        tile: Tile | None = None,
        depth: int = 2,
        names: Sequence[str] | None = None,
        dims_from_stream: Any = (),
    ) -> list[ObjectFifo]:
        """Fifos whose objects a memory tile puts side by side, at `offsets` (elements), into this fifo's objects."""
        where = self._memory(tile)
        self.settle(where, "a join")
        parts = [
            ObjectFifo(kind, depth=depth, name=names[i] if names else f"{self.fifo.name}_join{i}")
            for i, kind in enumerate(types)
        ]
        for part in parts:
            part.cons(tile=where, dims_from_stream=dims_from_stream)
        builder().link(where, [part.name for part in parts], [self.fifo.name], offsets)
        return parts


class Consumer(ObjectFifoHandle):
    """An end that reads objects."""

    port = "consume"

    def split(
        self,
        offsets: Sequence[int],
        types: Sequence[Any],
        *,
        tile: Tile | None = None,
        depth: int = 2,
        names: Sequence[str] | None = None,
        dims_to_stream: Any = (),
        repeat_count: int = 1,
        consumer_type: Any = None,
    ) -> list[ObjectFifo]:
        """Fifos whose objects a memory tile cuts out of this fifo's, at `offsets` (elements)."""
        where = self._memory(tile)
        self.settle(where, "a split")
        parts = []
        for i, kind in enumerate(types):
            name = names[i] if names else f"{self.fifo.name}_split{i}"
            how: Any = dict(dims_to_stream=dims_to_stream, repeat_count=repeat_count, consumer_type=consumer_type)
            part = ObjectFifo(kind, depth=depth, name=name, **how)
            part.prod(tile=where)
            parts.append(part)
        builder().link(where, [self.fifo.name], [part.name for part in parts], offsets)
        return parts

    def forward(
        self,
        type: Any = None,
        *,
        tile: Tile | None = None,
        depth: int = 2,
        name: str | None = None,
        dims_to_stream: Any = (),
        repeat_count: int = 1,
        pad_dimensions: Any = (),
        pad_value: int = 0,
        consumer_type: Any = None,
    ) -> ObjectFifo:
        """A fifo that a memory tile sends this fifo's objects on to, in another order where `dims_to_stream` says so."""
        where = self._memory(tile)
        self.settle(where, "a forward")
        onward = ObjectFifo(
            type or self.fifo.type,
            depth=depth,
            name=name or f"{self.fifo.name}_fwd",
            dims_to_stream=dims_to_stream,
            repeat_count=repeat_count,
            pad_dimensions=pad_dimensions,
            pad_value=pad_value,
            consumer_type=consumer_type,
        )
        onward.prod(tile=where)
        builder().link(where, [self.fifo.name], [onward.name], ())
        return onward


class ObjectFifo:
    """A fifo of `depth` objects of one type (an ObjectType, or a (shape, dtype) pair).

    dims_to_stream: (size, stride) pairs in elements, outermost first: the order in which the producer's DMA sends an
    object. repeat_count: how often it sends each. via_DMA: no shared memory between neighbours. pad_dimensions: (before,
    after) per pair, elements of `pad_value` a memory tile inserts. init_values: objects it starts with, each a flat tuple.
    consumer_type: where the consumers see objects of another size.
    """

    def __init__(
        self,
        type: Any,
        *,
        depth: int = 2,
        name: str | None = None,
        dims_to_stream: Any = (),
        repeat_count: int = 1,
        via_DMA: bool = False,
        pad_dimensions: Any = (),
        pad_value: int = 0,
        init_values: Any = (),
        consumer_type: Any = None,
    ) -> None:
        self.type = _type(type)
        self.depth = depth
        self.name = builder().name(name, "of")
        self.dims_to_stream = _dims(dims_to_stream)
        self.repeat_count = repeat_count
        self.via_DMA = via_DMA
        self.pad_dimensions = _dims(pad_dimensions)
        self.pad_value = pad_value
        self.init_values = tuple(tuple(one) for one in init_values)
        self.consumer_type = None if consumer_type is None else _type(consumer_type)
        self.producer: Producer | None = None
        self.consumers: list[Consumer] = []
        if not isinstance(depth, int) or depth < 1:
            raise DeclarationError(f"fifo {self.name}: depth={depth!r}; legal: at least 1.")
        builder().fifos.append(self)

    def prod(self, depth: int | None = None, *, tile: Tile | Lane | None = None) -> Producer:
        """The producing end, the same object at every call."""
        if self.producer is None:
            self.producer = Producer(self, depth, tile, 0)
        elif depth is not None or tile is not None:
            raise DeclarationError(f"fifo {self.name}: its producer exists; depth= and tile= belong in the first prod().")
        return self.producer

    def cons(
        self, depth: int | None = None, *, tile: Tile | Lane | None = None, dims_from_stream: Any = ()
    ) -> Consumer:
        """A new consuming end. Every object goes to every one of them."""
        end = Consumer(self, depth, tile, len(self.consumers) + 1, dims_from_stream)
        self.consumers.append(end)
        return end


def _dims(given: Any) -> tuple[tuple[int, int], ...]:
    return tuple((int(size), int(stride)) for size, stride in (given or ()))
