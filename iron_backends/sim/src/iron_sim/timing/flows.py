"""DMA channels that take time: rings' ends, shim channels with their tasks, and the flows between them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from iron_core.array.sequence import Transfer
from iron_sim.dma import order_of
from iron_sim.timing.clocked import Clocked, Fabric, Line, Tokens
from iron_sim.timing.hardware import Hardware


class Segment:
    """So many numbers on their way. since: the time from which they may move; done: told when all have. apart: they lie in host memory
    where nobody read before."""

    __slots__ = ("apart", "done", "left", "name", "since")

    def __init__(self, left: int, since: float, done: Callable[[float], None], name: str, apart: bool = False) -> None:
        self.apart = apart
        self.left = left
        self.since = since
        self.done = done
        self.name = name


class TimedShare:
    """A part of every buffer of a ring, with its tokens."""

    def __init__(self, line: Line, start: int, count: int, buffers: int, filled: int, repeat: int, name: str) -> None:
        self.start = start
        self.count = count
        self.repeat = repeat
        self.free = Tokens(line, (buffers - filled) * repeat, f"{name} free")
        self.full = Tokens(line, filled * repeat, f"{name} full")


class TimedRingEnd:
    """A DMA channel's side of a ring: shares in turn, or a whole object's together, as `iron_sim.dma.RingEnd`."""

    def __init__(
        self,
        name: str,
        shares: list[TimedShare],
        size: int,
        *,
        reads: bool,
        dims: tuple[tuple[int, int], ...] = (),
        pad: tuple[tuple[int, int], ...] = (),
    ) -> None:
        self.name = name
        self.shares = shares
        self.reads = reads
        moved = math.prod(n for n, _ in dims) if dims else 0
        self.whole = bool(dims) and len(shares) > 1 and moved != shares[0].count
        ordered = bool(dims) and order_of(dims) is not None
        #: Numbers in a segment; None: as many as its share has.
        self.size: int | None = size if self.whole else None
        if reads and ordered:
            self.size = moved
        if pad:
            self.size = math.prod(n + before + after for (n, _), (before, after) in zip(dims, pad, strict=True))
        self._share = 0
        self._sent = 0

    def take(self, actor: Clocked) -> Segment | None:
        """The next segment, or None after asking to be resumed."""
        shares = self.shares if self.whole else [self.shares[self._share]]
        reads = self.reads
        need = 1 if reads else shares[0].repeat
        for share in shares:
            tokens = share.full if reads else share.free
            if len(tokens.times) < need:
                tokens.wait(actor)
                return None
        since = max([(share.full if reads else share.free).take(need) for share in shares])
        count = self.size if self.size is not None else shares[0].count
        self._advance()

        def done(time: float) -> None:
            for share in shares:
                (share.free if reads else share.full).give(1 if reads else share.repeat, time)

        return Segment(count, since, done, self.name)

    def _advance(self) -> None:
        if self.whole:
            return
        if self.reads:
            self._sent += 1
            if self._sent < self.shares[self._share].repeat:
                return
            self._sent = 0
        self._share = (self._share + 1) % len(self.shares)


class TimedTask:
    """A transfer that was started: the numbers of each of its descriptors. then: told when it has ended, of one that a control flow
    started, whose descriptors lie apart."""

    def __init__(self, line: Line, transfer: Transfer, sizes: list[int], then: Callable[[float], None] | None = None) -> None:
        self.transfer = transfer
        self.sizes = sizes
        self.moved = sum(sizes)
        self.finished = Tokens(line, 0, f"task {transfer.task} ({transfer.way} {transfer.operand})")
        self.done = False
        self.apart = then is not None
        self._then = then

    def ended(self, time: float) -> None:
        self.done = True
        self.finished.give(1, time)
        if self._then is not None:
            self._then(time)


class TimedShim:
    """A shim channel: tasks in turn, and what it takes to begin and end one."""

    def __init__(self, name: str, line: Line, hw: Hardware, *, reads: bool) -> None:
        self.name = name
        self.reads = reads
        self.arrived = Tokens(line, 0, name)
        self.queue: deque[TimedTask] = deque()
        #: From a task that comes to a channel at rest, and from the end of the task or descriptor before, until the first number can
        #: move; and from the last number until the task has ended.
        self._begin = (hw.read_latency if reads else hw.channel_start).value * (1e-3 if reads else 1 / hw.clock.value)
        self._next = (hw.read_task if reads else hw.write_task).value * 1e-3
        self._end = 0.0 if reads else hw.write_latency.value * 1e-3
        self._chain = self._next if reads else hw.us(hw.descriptor_chain.value)
        self._task: TimedTask | None = None
        self._pieces: deque[int] = deque()
        self._free = 0.0

    def push(self, task: TimedTask, time: float) -> None:
        self.queue.append(task)
        self.arrived.give(1, time)

    def take(self, actor: Clocked) -> Segment | None:
        since = self._free + self._chain
        if not self._pieces:
            if not self.arrived.times:
                self.arrived.wait(actor)
                return None
            since = max(self.arrived.take(1) + self._begin, self._free + self._next)
            self._task = self.queue.popleft()
            self._pieces.extend(self._task.sizes)
        task = self._task
        assert task is not None
        count = self._pieces.popleft()
        last = not self._pieces

        def done(time: float) -> None:
            self._free = time
            if last:
                task.ended(time + self._end)

        return Segment(count, since, done, task.finished.name, task.apart)


class TimedFlow(Clocked):
    """A stream: pieces move as far as source and every sink have room, as wide as it is and as fast as the fabric lets it."""

    def __init__(
        self,
        name: str,
        line: Line,
        source: TimedRingEnd | TimedShim,
        sinks: list[Any],
        itemsize: int,
        hops: int,
        hw: Hardware,
        fabric: Fabric,
        traced: bool,
        rate: float | None = None,
    ) -> None:
        self.source = source
        self.sinks = sinks
        self.itemsize = itemsize
        self.moved = 0
        self.pieces = 0
        self.hw = hw
        self.fabric = fabric
        reads = isinstance(source, TimedShim)
        gbs = hw.shim_read_gbs if reads else hw.stream_gbs
        #: GB/s. rate: of what is narrower than the stream.
        self.gbs = gbs if rate is None else min(rate, gbs)
        #: From a number's leaving until it has arrived.
        self.latency = hw.us(hw.tile_memory_latency.value + hw.stream_hop.value * hops)
        super().__init__(name, line, traced)

    def run(self) -> Iterator[None]:
        source, sinks, hw, fabric, line = self.source, self.sinks, self.hw, self.fabric, self.line
        reads = isinstance(source, TimedShim)
        writes = any(isinstance(sink, TimedShim) for sink in sinks)
        each = self.itemsize * 1e-3 / self.gbs
        chain = hw.us(hw.descriptor_chain.value)
        many = range(len(sinks))
        sending: Segment | None = None
        receiving: list[Segment | None] = [None for _ in sinks]
        while True:
            while sending is None:
                sending = source.take(self)
                if sending is None:
                    yield
            count, start = sending.left, max(self.time, sending.since)
            for i in many:
                segment = receiving[i]
                while segment is None:
                    segment = receiving[i] = sinks[i].take(self)
                    if segment is None:
                        yield
                count = min(count, segment.left)
                start = max(start, segment.since)
            self.time = start
            if (reads or writes) and start > line.now:
                line.at(start, self)
                yield
            if reads and fabric.joins(self, self.gbs, start):
                line.at(start, self)
                yield
            if sending.apart:
                self.time = start = fabric.translated(start)
                sending.apart = False
            end = start + count * each
            if reads:
                end = fabric.read(self, count * self.itemsize, self.gbs, start)
            if writes:
                end = max(end, fabric.written(count * self.itemsize, start))
            self.moved += count
            self.pieces += 1
            self.spend(sending.name, end - start)
            sending.left -= count
            if not sending.left:
                sending.done(end)
                sending = None
            for i in many:
                segment = receiving[i]
                assert segment is not None
                segment.left -= count
                if not segment.left:
                    segment.done(end + self.latency)
                    receiving[i] = None
            self.time = end + chain
