"""DMA: rings of buffers with locks, shim task queues, and the flows that move objects between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from iron_core.array.descriptors import Descriptor
from iron_core.array.sequence import Transfer
from iron_core.devices import QUEUE
from iron_sim.actor import Actor, Scheduler, Semaphore
from iron_sim.errors import QueueOverrun, SimulationError
from iron_sim.memory import Mem


class Segment:
    """A run of numbers on their way: read from or written into `data`, in order. `done` is called when all have moved."""

    __slots__ = ("data", "done", "mask", "name", "position")

    def __init__(self, data: np.ndarray, mask: np.ndarray, done: Callable[[], None], name: str = "") -> None:
        self.data = data
        self.mask = mask
        self.done = done
        self.position = 0
        self.name = name

    @property
    def left(self) -> int:
        return self.data.size - self.position


class Share:
    """A part of every buffer of a ring with locks of its own: numbers `start` to `start + count`."""

    def __init__(self, ring: Ring, start: int, count: int, filled: int, repeat: int, name: str) -> None:
        scheduler = ring.scheduler
        empty = len(ring.buffers) - filled
        self.start = start
        self.count = count
        self.repeat = repeat
        self.free = Semaphore(scheduler, empty * repeat, f"{name} free")
        self.full = Semaphore(scheduler, filled * repeat, f"{name} full")


class Ring:
    """The buffers one end of a fifo has on a tile, used in turn."""

    def __init__(self, scheduler: Scheduler, buffers: list[Mem], name: str) -> None:
        self.scheduler = scheduler
        self.buffers = buffers
        self.name = name
        self.shares: list[Share] = []

    def share(self, start: int, count: int, *, filled: int = 0, repeat: int = 1) -> Share:
        """A part with locks of its own."""
        made = Share(self, start, count, filled, repeat, self.name)
        self.shares.append(made)
        return made


def order_of(dims: tuple[tuple[int, int], ...]) -> np.ndarray | None:
    """The flat order of a walk over (size, stride) pairs; None for consecutive numbers."""
    if not dims:
        return None
    at = np.zeros(1, np.int64)
    for size, stride in dims:
        at = (at[:, None] + np.arange(size, dtype=np.int64) * stride).reshape(-1)
    return None if np.array_equal(at, np.arange(at.size)) else at


class RingEnd:
    """A DMA channel's side of a ring: it takes the next share, moves it, and gives it on."""

    def __init__(
        self,
        name: str,
        ring: Ring,
        shares: list[Share],
        *,
        reads: bool,
        dims: tuple[tuple[int, int], ...] = (),
        pad: tuple[tuple[int, int], ...] = (),
        pad_value: int = 0,
    ) -> None:
        self.name = name
        self.ring = ring
        self.shares = shares
        self.reads = reads
        self.dims = dims
        self.pad = pad
        self.pad_value = pad_value
        self.order = order_of(dims)
        moved = int(np.prod([size for size, _ in dims])) if dims else 0
        #: Walks that cover a whole object take all its shares at once.
        self.whole = bool(dims) and len(shares) > 1 and moved != shares[0].count
        self._buffer = 0
        self._share = 0
        self._sent = 0

    def take(self, actor: Actor) -> Segment | None:
        """The next segment, or None after noting what `actor` waits for."""
        shares = self.shares if self.whole else [self.shares[self._share]]
        need = 1 if self.reads else shares[0].repeat
        for share in shares:
            semaphore = share.full if self.reads else share.free
            if semaphore.count < need:
                actor.block(semaphore, f"{'a filled' if self.reads else 'an empty'} object of {self.name}")
                return None
        for share in shares:
            semaphore = share.full if self.reads else share.free
            semaphore.count -= need
        buffer = self.ring.buffers[self._buffer]
        if self.whole:
            mem = buffer
        else:
            mem = buffer.part(shares[0].start, shares[0].count)
        self._advance()

        def give() -> None:
            for share in shares:
                (share.free if self.reads else share.full).give(1 if self.reads else share.repeat)

        return self._read(mem, give) if self.reads else self._write(mem, give)

    def _advance(self) -> None:
        if not self.whole and self.reads:
            self._sent += 1
            if self._sent < self.shares[self._share].repeat:
                return
            self._sent = 0
        if not self.whole:
            self._share += 1
            if self._share < len(self.shares):
                return
            self._share = 0
        self._buffer = (self._buffer + 1) % len(self.ring.buffers)

    def _read(self, mem: Mem, give: Callable[[], None]) -> Segment:
        if self.pad:
            shape = [size for size, _ in self.dims]
            order = self.order if self.order is not None else slice(None)
            data = np.pad(mem.data[order].reshape(shape), self.pad, constant_values=self.pad_value).reshape(-1)
            mask = np.pad(mem.mask[order].reshape(shape), self.pad).reshape(-1)
            return Segment(data, mask, give, self.name)
        if self.order is None:
            return Segment(mem.data, mem.mask, give, self.name)
        return Segment(mem.data[self.order], mem.mask[self.order], give, self.name)

    def _write(self, mem: Mem, give: Callable[[], None]) -> Segment:
        if self.order is None:
            return Segment(mem.data, mem.mask, give, self.name)
        data, mask = np.empty_like(mem.data), np.empty_like(mem.mask)

        def scatter() -> None:
            mem.data[self.order] = data
            mem.mask[self.order] = mask
            give()

        return Segment(data, mask, scatter, self.name)


class HostRegion:
    """A tensor in the host's memory as a sequence sees it: flat numbers, and which of them are poison (None: none)."""

    def __init__(self, name: str, data: np.ndarray, mask: np.ndarray | None = None, base: int = 0) -> None:
        self.name = name
        self.data = data
        self.mask = mask
        #: Where its first byte is, in a space all regions share: tells writers of one address.
        self.base = base


class Task:
    """A transfer that was started: its descriptors with this call's offset and length."""

    def __init__(self, transfer: Transfer, region: HostRegion, offset: int, length: int | None, scheduler: Scheduler) -> None:
        self.descriptors = [d.shifted(offset) for d in transfer.descriptors]
        self.name = f"task {transfer.task} ({transfer.way} {transfer.operand})"
        self.finished = Semaphore(scheduler, 0, self.name)
        self.moved = 0
        self.transfer = transfer
        self.region = region
        self.length = length
        for low, high in map(self._span, self.descriptors):
            if low < 0 or high > region.data.size:
                raise SimulationError(
                    f"{self.name} touches elements {low} to {high - 1} of {region.name}, which has {region.data.size}."
                )

    @property
    def done(self) -> bool:
        return self.finished.count > 0

    def ended(self) -> None:
        """Its last descriptor has moved."""
        self.finished.give(1)

    def _span(self, d: Descriptor) -> tuple[int, int]:
        """First and one past the last element a descriptor touches, in as far as the call's length reaches."""
        if self.length is None:
            return d.pattern().span
        at = d.addresses(self.length)
        return int(at.min()), int(at.max()) + 1

    def addresses(self) -> np.ndarray:
        """Every element it moves, in order."""
        return np.concatenate([d.addresses(self.length) for d in self.descriptors])

    def span(self) -> tuple[int, int]:
        """First and one past the last byte it may touch, in the space all regions share."""
        item = self.region.data.itemsize
        spans = [self._span(d) for d in self.descriptors]
        return self.region.base + min(s[0] for s in spans) * item, self.region.base + max(s[1] for s in spans) * item

    def segment(self, piece: Descriptor, reads: bool, done: Callable[[], None]) -> Segment:
        flat, marks = self.region.data, self.region.mask
        at: Any
        if piece.sizes[:3] == (1, 1, 1) and piece.strides[3] == 1:
            at = slice(piece.offset, piece.offset + min(piece.size, self.length or piece.size))
        else:
            at = piece.addresses(self.length)
        if reads or isinstance(at, slice):
            data = flat[at]
            self.moved += data.size
            return Segment(data, _marks(marks, at, data.size, reads), done, self.name)
        self.moved += at.size
        staged, staged_marks = np.empty(at.size, flat.dtype), np.empty(at.size, bool)

        def scatter() -> None:
            flat[at] = staged
            if marks is not None:
                marks[at] = staged_marks
            done()

        return Segment(staged, staged_marks, scatter, self.name)


def _marks(marks: np.ndarray | None, at: Any, size: int, reads: bool) -> np.ndarray:
    """The marks of some numbers. Memory without marks is all written; what is written there needs no mark."""
    if marks is not None:
        return marks[at]
    return np.broadcast_to(np.zeros(1, bool), size) if reads else np.empty(size, bool)


class ShimEnd:
    """A shim DMA channel: a queue of tasks, one at a time."""

    def __init__(self, name: str, scheduler: Scheduler, *, reads: bool) -> None:
        self.name = name
        self.reads = reads
        self.queue: deque[Task] = deque()
        self.current: Task | None = None
        self.pending: deque[Any] = deque()
        self.arrived = Semaphore(scheduler, 0, name, "the sequence")
        self.outstanding = 0

    def push(self, task: Task) -> None:
        """Queue a task; QueueOverrun where the channel holds no more."""
        if self.outstanding >= QUEUE:
            raise QueueOverrun(f"{task.name} is the {self.outstanding + 1}th task on {self.name}, whose queue holds {QUEUE}.")
        self.outstanding += 1
        self.queue.append(task)
        self.arrived.give(1)

    def take(self, actor: Actor) -> Segment | None:
        """The next segment, or None after noting what `actor` waits for."""
        if not self.pending:
            if not self.queue:
                actor.block(self.arrived, f"a task on {self.name}")
                return None
            self.current = self.queue.popleft()
            self.pending.extend(self.current.descriptors)
        task = self.current
        assert task is not None
        piece = self.pending.popleft()
        last = not self.pending

        def done() -> None:
            if last:
                self.outstanding -= 1
                task.ended()

        return task.segment(piece, self.reads, done)


class Flow(Actor):
    """A stream from one DMA channel to one or several: objects move as far as every receiver has room."""

    def __init__(self, name: str, source: RingEnd | ShimEnd, sinks: list[Any]) -> None:
        super().__init__(name)
        self.source = source
        self.sinks = sinks
        self.sending: Segment | None = None
        self.receiving: list[Segment | None] = [None] * len(sinks)
        self.moved = 0

    def run(self) -> Iterator[None]:
        source, sinks, receiving = self.source, self.sinks, self.receiving
        many = len(sinks)
        while True:
            while self.sending is None:
                self.sending = source.take(self)
                if self.sending is None:
                    yield
            sending = self.sending
            count = sending.left
            for i in range(many):
                segment = receiving[i]
                while segment is None:
                    segment = receiving[i] = sinks[i].take(self)
                    if segment is None:
                        yield
                count = min(count, segment.left)
            start = sending.position
            stop = start + count
            for i in range(many):
                segment = receiving[i]
                assert segment is not None
                at = segment.position
                segment.data[at : at + count] = sending.data[start:stop]
                segment.mask[at : at + count] = sending.mask[start:stop]
            self.moved += count
            sending.position = stop
            if not sending.left:
                self.sending = None
                sending.done()
            for i in range(many):
                segment = receiving[i]
                assert segment is not None
                segment.position += count
                if not segment.left:
                    receiving[i] = None
                    segment.done()

    @property
    def partial(self) -> str:
        """What is under way and not whole, or ''."""
        if self.sending is not None and self.sending.position:
            return f"{self.sending.name} has {self.sending.left} numbers left to send on {self.name}"
        for segment in self.receiving:
            if segment is not None and segment.position:
                return f"{segment.name} lacks {segment.left} numbers on {self.name}"
        return ""
