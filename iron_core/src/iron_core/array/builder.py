"""What `array()` makes, gathered while it runs, and frozen into an `ArrayDesign` afterwards."""

from __future__ import annotations

import contextlib
import contextvars
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from iron_core.array.kernel import Kernel
from iron_core.array.tile import ROWS, Tile
from iron_core.errors import DeclarationError

if TYPE_CHECKING:
    from iron_core.array.design import ArrayDesign


class Builder:
    """The parts of one array (objects of these names' classes), in the order they were made."""

    def __init__(self) -> None:
        self.fifos: list[Any] = []
        self.workers: list[Any] = []
        self.buffers: list[Any] = []
        self.locks: list[Any] = []
        self.links: list[tuple[Tile, tuple[str, ...], tuple[str, ...], tuple[int, ...]]] = []
        self.controls: list[Any] = []
        self.values: dict[str, list[tuple[str, int]]] = {}
        #: The barrier of workers with `values=`, once one is made.
        self.ready: Any = None
        self._names: set[str] = set()

    def name(self, given: str | None, kind: str) -> str:
        """`given`, or a fresh name; DeclarationError where another part has it."""
        if given is None:
            number = 0
            while f"{kind}{number}" in self._names:
                number += 1
            given = f"{kind}{number}"
        if given in self._names:
            raise DeclarationError(f"two parts of one array are named {given!r}; give each its own name=.")
        if not given.isidentifier():
            raise DeclarationError(f"name={given!r}; legal: letters, digits and underscores.")
        self._names.add(given)
        return given

    def bind(self, value: str, buffer: str, index: int) -> None:
        """A core reads this Value as number `index` of a buffer that the sequence writes."""
        self.values.setdefault(value, []).append((buffer, index))

    def link(self, tile: Tile, sources: Sequence[str], targets: Sequence[str], offsets: Sequence[int]) -> None:
        """Fifos that meet on a tile, by name: see `LinkData`. DeclarationError for another number of offsets than parts."""
        many = max(len(sources), len(targets))
        if offsets and len(offsets) != many:
            raise DeclarationError(f"link of {', '.join(sources)} to {', '.join(targets)}: {len(offsets)} offsets for {many} parts.")
        self.links.append((tile, tuple(sources), tuple(targets), tuple(int(o) for o in offsets)))

    def kernels(self) -> dict[str, Kernel]:
        """What the array's cores call, by symbol."""
        found: dict[str, Kernel] = {}
        for worker in self.workers:
            for symbol, kernel in worker.kernels.items():
                if found.setdefault(symbol, kernel).data != kernel.data:
                    raise DeclarationError(f"two kernels of one array are named {symbol!r}; give each its own name.")
        return found

    def freeze(self, name: str, dev: str) -> ArrayDesign:
        """The array as data."""
        # Declaring an operator loads what array() may use; what arrays are as data, only building one.
        from iron_core.array.design import (
            ArrayDesign,
            BufferData,
            ControlData,
            CoreData,
            LaneData,
            LinkData,
            LockData,
            TileData,
            ValueData,
        )

        tiles: dict[Any, TileData] = {}
        counts: Counter[str] = Counter()

        def at(tile: Tile | None, what: str) -> str:
            if tile is None:
                raise DeclarationError(f"{what} is used by no worker, link or lane; it has no tile.")
            row = ROWS.get(tile.kind, tile.row)
            key = id(tile) if tile.col is None or row is None else (tile.col, row)  # equal places are one tile
            if key not in tiles:
                tiles[key] = TileData(f"{tile.kind}{counts[tile.kind]}", tile.kind, tile.col, row)
                counts[tile.kind] += 1
            return tiles[key].name

        cores = tuple(
            CoreData(w.name, at(w.tile, w.name), w.stack, w.program, w.forever) for w in self.workers
        )
        fifos = tuple(self._fifo(fifo, at) for fifo in self.fifos)
        kernels = self.kernels()
        locks = [LockData(lock.name, at(lock.tile, f"lock {lock.name}"), lock.init) for lock in self.locks]
        for worker in self.workers:
            locks += [
                LockData(b.lock_name(worker.name), at(worker.tile, worker.name), b.initial, "barrier")
                for b in worker.barriers
            ]
        lanes = []
        taken: dict[tuple[str, str, int], str] = {}
        for fifo in self.fifos:
            for end in (fifo.producer, *fifo.consumers):
                if end is not None and end.lane is not None:
                    operand, index = end.lane.operand, end.lane.index
                    other = taken.setdefault((end.port, operand, index), fifo.name)
                    if other != fifo.name:
                        raise DeclarationError(
                            f"{name}: lane {index} of {operand} is an end of fifo {other} and of fifo {fifo.name}; legal: each lane once, "
                            "and split() or forward() for what goes on from there."
                        )
                    lanes.append(LaneData(operand, index, fifo.name))
        lanes += [LaneData(c.source.operand, c.source.index, c.name) for c in self.controls]
        controls = tuple(
            ControlData(c.name, at(c.source.tile, c.name), at(c.target, c.name), c.fifo.name, c.channel) for c in self.controls
        )
        return ArrayDesign(
            name=name,
            dev=dev,
            fifos=fifos,
            links=tuple(
                LinkData(at(tile, "a link"), sources, targets, offsets) for tile, sources, targets, offsets in self.links
            ),
            buffers=tuple(
                BufferData(b.name, at(b.tile, repr(b)), b.type, b.initial, b.written) for b in self.buffers
            ),
            locks=tuple(locks),
            kernels=tuple(kernels[symbol].data for symbol in sorted(kernels)),
            cores=cores,
            lanes=tuple(lanes),
            values=tuple(ValueData(value, tuple(words)) for value, words in self.values.items()),
            controls=controls,
            tiles=tuple(tiles.values()),
        )

    def _fifo(self, fifo: Any, at: Any) -> Any:
        from iron_core.array.design import FifoData

        if fifo.producer is None or not fifo.consumers:
            missing = "producer" if fifo.producer is None else "consumer"
            raise DeclarationError(f"fifo {fifo.name} has no {missing}.")
        ends = (fifo.producer, *fifo.consumers)
        depths = tuple(end.depth if end.depth is not None else fifo.depth for end in ends)
        explicit = any(end.depth is not None for end in ends)
        from_stream = tuple(end.dims for end in fifo.consumers)
        return FifoData(
            name=fifo.name,
            type=fifo.type,
            depth=depths if explicit else fifo.depth,
            producer=at(fifo.producer.tile, f"the producer of {fifo.name}"),
            consumers=tuple(at(end.tile, f"a consumer of {fifo.name}") for end in fifo.consumers),
            to_stream=fifo.dims_to_stream,
            from_stream=from_stream if any(from_stream) else (),
            repeat=fifo.repeat_count,
            via_dma=fifo.via_DMA,
            pad=fifo.pad_dimensions,
            pad_value=fifo.pad_value,
            init=fifo.init_values,
            consumer_type=fifo.consumer_type,
        )


_builder: contextvars.ContextVar[Builder | None] = contextvars.ContextVar("iron_array_builder", default=None)


def builder() -> Builder:
    """The array being built; DeclarationError outside of an operator's `array()`."""
    active = _builder.get()
    if active is None:
        raise DeclarationError("fifos, workers, buffers and locks are made in an operator's array(), while it is built.")
    return active


@contextlib.contextmanager
def building() -> Iterator[Builder]:
    """Gather the parts made inside the block."""
    active = Builder()
    token = _builder.set(active)
    try:
        yield active
    finally:
        _builder.reset(token)
