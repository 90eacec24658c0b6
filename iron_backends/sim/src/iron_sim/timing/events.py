"""One run of a design as events in time, without its data: what `timed` tells of an `ArrayDesign` and its sequence.

Cores run their recorded programs with this call's words; objects, descriptors and tasks are those of `iron_sim.machine`, as numbers that
say how large they are. What everything takes is the hardware's (`iron_sim.timing.hardware`) and the kernels' (`iron_sim.timing.kernels`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as SequenceOf
from typing import Any

import attrs

from iron_core.array.descriptors import Descriptor
from iron_core.array.design import ArrayDesign, ControlData, Design
from iron_core.array.fit import fit
from iron_core.array.kernel import Kernel
from iron_core.array.pools import TilePlacement, fifo_pools
from iron_core.array.sequence import Await, AwaitToken, Free, Sequence, SetBarrier, Sync, Transfer, WriteWord
from iron_sim.errors import Deadlock, SimulationError
from iron_sim.timing.banks import shared_rates
from iron_sim.timing.clocked import Barrier, Clocked, Event, Fabric, Line, Tokens
from iron_sim.timing.cores import CoreEnd, TimedCore
from iron_sim.timing.costs import step_cycles
from iron_sim.timing.flows import Segment, TimedFlow, TimedRingEnd, TimedShare, TimedShim, TimedTask
from iron_sim.timing.hardware import Hardware, hardware
from iron_sim.timing.kernels import kernel_cycles


@attrs.frozen
class Timed:
    """What a run took. us: until the sequence ended. calls: kernel calls by core; moved: numbers by fifo and how often one moved;
    busy_us: by core and stream. events: by actor, (what, start, duration) in microseconds, where they were asked for."""

    us: float
    calls: Mapping[str, int]
    moved: Mapping[str, int]
    pieces: Mapping[str, int]
    busy_us: Mapping[str, float]
    events: Mapping[str, list[Event]] = attrs.field(factory=dict, repr=False)


def timed(
    design: Design,
    kernels: Mapping[str, Kernel],
    numbers: Mapping[str, int] | None = None,
    *,
    hw: Hardware | None = None,
    placement: TilePlacement | None = None,
    trace: bool = False,
    followed: Mapping[str, SequenceOf[int]] | None = None,
    partial: bool = False,
) -> Timed:
    """Run a design once with these numbers of its words (by name). Deadlock where it cannot go on; SimulationError where a core
    follows numbers that data gives. followed: by core, these numbers, as a machine of `iron_sim.machine` has read them. partial: a run that
    cannot go on is told as far as it came."""
    array = design.array
    run = _Run(design, kernels, hw or hardware(array.dev), fit(design) if placement is None else placement, trace, followed or {})
    controller = _Controller(run, design.sequence, numbers or {}, trace)
    for actor in (*run.cores, *run.flows, controller):
        run.line.at(0.0, actor)
    run.line.run()
    if not controller.ended and not partial:
        lines = [f"  {one.name} waits for {one.waiting}" for one in (controller, *run.cores, *run.flows) if not one.ended and one.waiting]
        raise Deadlock("\n".join((f"{array.name} on {array.dev} cannot go on:", *lines)))
    actors: tuple[Clocked, ...] = (*run.cores, *run.flows, controller)
    ends = [task.finished.times[-1] for task in controller.tasks.values() if task.finished.times]
    return Timed(
        max([controller.time, *ends, *(one.time for one in actors if not controller.ended)]),
        {core.name: core.calls for core in run.cores},
        {flow.name: flow.moved for flow in run.flows},
        {flow.name: flow.pieces for flow in run.flows},
        {actor.name: actor.busy for actor in actors},
        {actor.name: actor.events for actor in actors if actor.events is not None},
    )


class _Run:
    """The actors of an array."""

    def __init__(
        self,
        design: Design,
        kernels: Mapping[str, Kernel],
        hw: Hardware,
        placement: TilePlacement,
        trace: bool,
        followed: Mapping[str, SequenceOf[int]],
    ) -> None:
        self.array: ArrayDesign = design.array
        array = self.array
        self.hw = hw
        self.rates = shared_rates(design, hw)
        self.line = line = Line()
        self.placement = placement
        self.trace = trace
        self.fabric = Fabric(hw)
        self.words = {
            b.name: [int(n) for n in b.initial] if b.initial else [0] * b.type.elements
            for b in array.buffers
            if b.type.dtype.kind in "iu" and (b.written or b.initial or b.type.elements <= _WORDS)
        }
        self.locks: dict[str, Tokens | Barrier] = {
            lock.name: (Barrier if lock.kind == "barrier" else Tokens)(line, lock.initial, lock.name) for lock in array.locks
        }
        self.pools = fifo_pools(array, placement)
        self.shims: dict[tuple[str, str], TimedShim] = {}
        self.ends: dict[tuple[str, int], TimedRingEnd] = {}
        self.core_ends: dict[str, dict[tuple[str, str], CoreEnd]] = {core.tile: {} for core in array.cores}
        self._make_ends()
        self.flows = [self._flow(fifo) for fifo in array.fifos if self.pools.end(fifo.name, 0).way]
        self.controls: dict[str, _ControlPort] = {}
        for data in array.controls:
            item = array.fifo(data.fifo).type.dtype.itemsize
            self.controls[data.name] = port = _ControlPort(data, self.shims[data.fifo, "fill"], item, line, hw)
            self.shims[data.name, "fill"] = shim = TimedShim(f"the shim channel of {data.name}", line, hw, reads=True)
            self.flows.append(TimedFlow(f"stream {data.name}", line, shim, [port], 4, 2, hw, self.fabric, trace))
        cycles = {symbol: kernel_cycles(kernel, hw) for symbol, kernel in kernels.items()}
        self.cores = [
            TimedCore(core, line, self.core_ends[core.tile], self.words, self.locks, cycles, hw, trace, followed.get(core.name, ()))
            for core in array.cores
        ]

    def _make_ends(self) -> None:
        rings: dict[str, list[TimedShare]] = {}
        for pool in self.pools.pools:
            rings[pool.name] = [
                TimedShare(self.line, start, count, pool.depth, pool.initial, pool.repeat, pool.name) for start, count in pool.parts
            ]
        for end in self.pools.ends:
            fifo = self.array.fifo(end.fifo)
            reads = end.number == 0
            if self.array.tile(end.tile).kind == "shim":
                way = "fill" if reads else "drain"
                self.shims[end.fifo, way] = TimedShim(f"the shim channel of {end.fifo}", self.line, self.hw, reads=reads)
                continue
            shares = rings[end.pool]
            if self.array.core_at(end.tile) is not None:
                share = shares[0]
                takes, gives = (share.free, share.full) if reads else (share.full, share.free)
                self.core_ends[end.tile][end.fifo, end.port] = CoreEnd(takes, gives, share.repeat if reads else 1)
            if end.way:
                mine = shares if end.part is None else [shares[end.part]]
                size = self.pools.pool(end.pool).type.elements
                pad = fifo.pad if reads else ()
                self.ends[end.fifo, end.number] = TimedRingEnd(end.fifo, mine, size, reads=reads, dims=end.dims, pad=pad)

    def _flow(self, fifo: Any) -> TimedFlow:
        source: Any = self.shims.get((fifo.name, "fill")) or self.ends[fifo.name, 0]
        sinks: list[Any] = []
        for number, tile in enumerate(fifo.consumers, 1):
            shim = self.array.tile(tile).kind == "shim"
            sinks.append(self.shims[fifo.name, "drain"] if shim else self.ends[fifo.name, number])
        places = [self.placement.get(tile, (0, 0)) for tile in fifo.ends()]
        col, row = places[0]
        hops = 2 + max(abs(c - col) + abs(r - row) for c, r in places[1:])
        item = fifo.type.dtype.itemsize
        rate = self.rates.get(fifo.name)
        return TimedFlow(f"stream {fifo.name}", self.line, source, sinks, item, hops, self.hw, self.fabric, self.trace, rate)


#: Integer buffers of at most so many numbers may be what a core counts in; larger ones hold data.
_WORDS = 64


class _ControlPort:
    """Where control words arrive: batch by batch they write descriptors, then start them on the channel they drive."""

    def __init__(self, data: ControlData, channel: TimedShim, itemsize: int, line: Line, hw: Hardware) -> None:
        self.data = data
        self.channel = channel
        self.itemsize = itemsize
        self.line = line
        self.tokens = Tokens(line, 0, f"a token of {data.fifo}")
        self.batches: deque[tuple[int, int, Transfer]] = deque()
        self.row_bytes = 0
        self._word = 4e-3 / hw.register_rate.value
        self._free = 0.0

    def expect(self, transfer: Transfer, gather: Any, pieces: list[Descriptor]) -> None:
        """The batches whose words this transfer sends."""
        self.row_bytes = gather.row_bytes
        known: dict[int, tuple[int, int]] = {}
        for feed in range(gather.feeds):
            known.update({at: (count, rows) for (at, count), rows in zip(gather.parts(feed), gather.batches(feed), strict=True)})
        for piece in pieces:
            at, stop = piece.offset, piece.offset + piece.size
            while at < stop:
                count, rows = known[at]
                self.batches.append((count, rows, transfer))
                at += count

    def take(self, actor: Clocked) -> Segment:
        count, rows, transfer = self.batches.popleft()
        since = self._free

        def done(time: float) -> None:
            self._free = written = time + count * self._word
            sizes = [self.row_bytes // self.itemsize] * rows
            self.channel.push(TimedTask(self.line, transfer, sizes, lambda end: self.tokens.give(1, end)), written)

        return Segment(count, since, done, self.data.name)


class _Controller(Clocked):
    """The sequence, instruction by instruction."""

    def __init__(self, run: _Run, sequence: Sequence, numbers: Mapping[str, int], traced: bool) -> None:
        self.array = run
        self.sequence = sequence
        self.numbers = numbers
        self.tasks: dict[int, TimedTask] = {}
        super().__init__("the sequence", run.line, traced)

    def run(self) -> Iterator[None]:
        run, hw = self.array, self.array.hw
        gathers = {argument.operand: argument.control for argument in self.sequence.arguments if argument.control is not None}
        for step in self.sequence.steps:
            us = hw.us(step_cycles(step, hw))
            match step:
                case Transfer():
                    self.spend(type(step).__name__, us)
                    self._start(step, gathers)
                case Await():
                    task = self._task(step.task)
                    if not task.finished.times:
                        task.finished.wait(self)
                        yield
                    self.time = max(self.time, task.finished.times[0])
                    self.spend(type(step).__name__, us)
                case WriteWord():
                    run.words[step.buffer][step.index] = step.value
                    self.spend(type(step).__name__, us)
                case Sync():
                    for buffer, index, word in step.words:
                        run.words[buffer][index] = self.numbers[word.name]
                    self.spend(type(step).__name__, us)
                case Free():
                    self.spend(type(step).__name__, us)
                case SetBarrier():
                    self.spend(type(step).__name__, us)
                    barrier = run.locks[step.lock]
                    assert isinstance(barrier, Barrier)
                    barrier.set(step.value, self.time)
                    run.line.at(self.time, self)  # cores read their words before later steps write others
                    yield
                case AwaitToken():
                    tokens = next(port.tokens for port in run.controls.values() if port.data.fifo == step.fifo)
                    while not tokens.times:
                        tokens.wait(self)
                        yield
                    self.time = max(self.time, tokens.take(1))
                    self.spend(type(step).__name__, us)

    def _task(self, number: int) -> TimedTask:
        if number not in self.tasks:
            raise SimulationError(f"task {number} is waited for and was never started.")
        return self.tasks[number]

    def _start(self, step: Transfer, gathers: Mapping[str, Any]) -> None:
        run, pieces = self.array, step.descriptors
        length = None if step.length_by is None else self.numbers[step.length_by.name] * step.unit
        sizes = [piece.size if length is None else piece.sizes[0] * min(length, piece.size // piece.sizes[0]) for piece in pieces]
        if step.fifo in run.controls:
            run.controls[step.fifo].expect(step, gathers[step.operand], list(pieces))
        task = self.tasks[step.task] = TimedTask(run.line, step, sizes)
        run.shims[step.fifo, step.way].push(task, self.time)
