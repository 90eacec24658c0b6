"""One array, configured: its cores, rings and flows, and the controller that runs sequences on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import numpy as np

from iron_core.array.design import ArrayDesign
from iron_core.array.kernel import Kernel
from iron_core.array.pools import End, FifoPools, TilePlacement, fifo_pools
from iron_core.array.sequence import (
    Await,
    AwaitToken,
    Free,
    Sequence,
    SetBarrier,
    Sync,
    Transfer,
    WriteWord,
)
from iron_core.devices import device
from iron_sim.actor import Actor, Scheduler, Semaphore, deadlock
from iron_sim.control import ControlPort
from iron_sim.core import Core, CoreEnd
from iron_sim.dma import Flow, HostRegion, Ring, RingEnd, ShimEnd, Task
from iron_sim.errors import Race, SimulationError
from iron_sim.memory import Mem


@attrs.define
class Stats:
    """What one run of a sequence did. moved: elements per (operand, fifo); calls: kernel calls."""

    moved: dict[tuple[str, str], int] = attrs.field(factory=dict)
    calls: int = 0

    def elements(self, operand: str) -> int:
        """Elements that crossed the shim for an operand."""
        return sum(n for (name, _), n in self.moved.items() if name == operand)


class Machine:
    """An array as it is after configuration. Cores keep running between sequences, so its state stays.

    kernels: what its cores call, by symbol; each call is their tile reference. follow: keep what cores read of objects.
    """

    def __init__(
        self,
        array: ArrayDesign,
        kernels: Mapping[str, Kernel],
        placement: TilePlacement | None = None,
        *,
        follow: bool = False,
    ) -> None:
        self.array = array
        self.scheduler = Scheduler()
        self.pools: FifoPools = fifo_pools(array, placement)
        self.buffers = {
            b.name: Mem.holding(b.type, b.initial) if b.initial else Mem.fresh(b.type) for b in array.buffers
        }
        self.locks = {
            lock.name: Semaphore(
                self.scheduler, lock.initial, lock.name, "the sequence" if lock.kind == "barrier" else "another core"
            )
            for lock in array.locks
        }
        self.shims: dict[tuple[str, str], ShimEnd] = {}
        self.ends: dict[tuple[str, int], RingEnd] = {}
        self.core_ends: dict[str, dict[tuple[str, str], CoreEnd]] = {core.tile: {} for core in array.cores}
        self.rings: dict[str, Ring] = {}
        self._make_ends()
        self.flows = [self._flow(fifo) for fifo in array.fifos if self.pools.end(fifo.name, 0).way]
        #: By the fifo whose channel the packets drive.
        there = device(array.dev).shim.descriptors  # type: ignore[union-attr]
        self.controls = {
            data.fifo: ControlPort(data, self.shims[data.fifo, "fill"], array.fifo(data.fifo).type.dtype, there, self.scheduler)
            for data in array.controls
        }
        for port in self.controls.values():
            self.shims[port.data.name, "fill"] = shim = ShimEnd(port.data.name, self.scheduler, reads=True)
            self.flows.append(Flow(f"stream {port.data.name}", shim, [port]))
        self.cores = [
            Core(
                core,
                self.core_ends[core.tile],
                {b.name: self.buffers[b.name] for b in array.buffers if b.tile == core.tile},
                self.locks,
                kernels,
            )
            for core in array.cores
        ]
        for core in self.cores:
            core.followed = [] if follow else None
        self.actors: list[Actor] = [*self.cores, *self.flows]
        for actor in self.actors:
            self.scheduler.ready(actor)
        self.scheduler.settle()
        self._at_rest = self._objects()

    # -- making it -----------------------------------------------------------------------------------

    def _make_ends(self) -> None:
        """The ring of every pool, and what cores, DMAs and shims have of it."""
        rings = self.rings
        for pool in self.pools.pools:
            buffers = [Mem.fresh(pool.type) for _ in range(pool.depth)]
            ring = rings[pool.name] = Ring(self.scheduler, buffers, pool.name)
            for start, count in pool.parts:
                ring.share(start, count, filled=pool.initial, repeat=pool.repeat)
        for fifo in self.array.fifos:
            pool_name = self.pools.end(fifo.name, 0).pool
            for i, values in enumerate(fifo.init):
                mem = rings[pool_name].buffers[i]
                mem.data[:] = values
                mem.mask[:] = False
        for end in self.pools.ends:
            fifo = self.array.fifo(end.fifo)
            kind = self.array.tile(end.tile).kind
            if kind == "shim":
                way = "fills" if end.number == 0 else "drains"
                self.shims[end.fifo, "fill" if end.number == 0 else "drain"] = ShimEnd(
                    f"the shim channel that {way} {end.fifo}", self.scheduler, reads=end.number == 0
                )
                continue
            ring = rings[end.pool]
            shares = ring.shares if end.part is None else [ring.shares[end.part]]
            core = self.array.core_at(end.tile)
            if kind == "core" and core is not None:
                self._core_end(end, ring, core.name)
            if end.way:
                self.ends[end.fifo, end.number] = RingEnd(
                    end.fifo,
                    ring,
                    shares,
                    reads=end.number == 0,
                    dims=end.dims,
                    pad=fifo.pad if end.number == 0 else (),
                    pad_value=fifo.pad_value,
                )

    def _core_end(self, end: End, ring: Ring, core: str) -> None:
        share = ring.shares[0]
        produces = end.number == 0
        takes, gives = (share.free, share.full) if produces else (share.full, share.free)
        gives.provider = core
        repeat = share.repeat if produces else 1
        self.core_ends[end.tile][end.fifo, end.port] = CoreEnd(end.fifo, ring.buffers, takes, gives, repeat)

    def _flow(self, fifo: Any) -> Flow:
        source: Any = self.shims.get((fifo.name, "fill")) or self.ends[fifo.name, 0]
        sinks: list[Any] = []
        for number, tile in enumerate(fifo.consumers, 1):
            shim = self.array.tile(tile).kind == "shim"
            sinks.append(self.shims[fifo.name, "drain"] if shim else self.ends[fifo.name, number])
        flow = Flow(f"stream {fifo.name}", source, sinks)
        for end in (source, *sinks):
            if isinstance(end, RingEnd):
                for share in end.shares:
                    (share.free if end.reads else share.full).provider = flow.name
        return flow

    # -- running it ----------------------------------------------------------------------------------

    def run(self, sequence: Sequence, regions: Mapping[str, HostRegion], numbers: Mapping[str, int]) -> Stats:
        """Run a sequence on tensors and this call's words, to its end. Errors are those of `iron_sim.errors`."""
        controller = Controller(self, sequence, regions, numbers)
        for port in self.controls.values():
            port.tasks, port.regions = controller.tasks, controller.regions
        calls = sum(core.calls for core in self.cores)
        self.scheduler.ready(controller)
        self.scheduler.settle()
        if not controller.ended:
            raise deadlock(f"{self.array.name} on {self.array.dev} cannot go on:", self._blocked(controller))
        self._settled(controller)
        moved: dict[tuple[str, str], int] = {}
        for task in controller.tasks.values():
            key = (task.transfer.operand, task.transfer.fifo)
            moved[key] = moved.get(key, 0) + task.moved
        return Stats(moved, sum(core.calls for core in self.cores) - calls)

    def followed(self) -> dict[str, list[int]]:
        """What each core has read of objects since it was last asked, in order, where that is kept."""
        found = {core.name: core.followed for core in self.cores if core.followed is not None}
        for core in self.cores:
            core.followed = None if core.followed is None else []
        return found

    def _blocked(self, controller: Controller) -> list[Actor]:
        """The sequence and all that are in the middle of something, then, step by step, those that they wait for."""
        found = [controller, *(actor for actor in self.actors if actor.waiting and not self._resting(actor))]
        names = {actor.name: actor for actor in self.actors}
        for actor in found:
            provider = names.get(actor.provider)
            if provider is not None and provider.waiting and provider not in found:
                found.append(provider)
        return found

    def _resting(self, actor: Actor) -> bool:
        """Is it where it may be for ever: a core before its first wait, a flow without anything to send?"""
        if isinstance(actor, Core):
            return actor.idle and not actor.waiting.startswith("lock")
        assert isinstance(actor, Flow)
        return actor.sending is None

    def _settled(self, controller: Controller) -> None:
        """After a sequence: nothing is under way, held or left over."""
        for task in controller.tasks.values():
            if not task.done:
                raise SimulationError(f"the sequence ended and {task.name} has not: {self._why(task)}")
        for port in self.controls.values():
            port.settled()
        for flow in self.flows:
            if flow.partial:
                raise SimulationError(f"the sequence ended in the middle of an object: {flow.partial}.")
        for core in self.cores:
            held = [end.name for end in core.ends.values() if end.held]
            if held:
                raise SimulationError(f"the sequence ended and {core.name} still holds {', '.join(held)}.")
        for (where, count), (_, rest) in zip(self._objects(), self._at_rest, strict=True):
            if count != rest:
                words = f"{count - rest} objects are left that nobody took" if count > rest else f"{rest - count} objects are gone"
                raise SimulationError(f"the sequence ended and {words}: {where}.")
        for core in self.cores:
            if not core.at_start:
                raise SimulationError(
                    f"the sequence ended and {core.name} is in the middle of its program, waiting for {core.waiting}."
                )

    def _objects(self) -> list[tuple[str, int]]:
        """How many filled objects are where: in a pool's part, or at the head of a stream that does not take them."""
        found = [(f"filled {ring.name}", share.full.count) for ring in self.rings.values() for share in ring.shares]
        return found + [(flow.name, int(flow.sending is not None)) for flow in self.flows]

    def _why(self, task: Task) -> str:
        flow = next(f for f in self.flows if f.name == f"stream {task.transfer.fifo}")
        return f"{flow.name} waits for {flow.waiting}."


class Controller(Actor):
    """The sequence: it configures, starts and awaits tasks and writes words, as fast as it may.

    A step that should have waited and does not is therefore done before the array is ready for it, and is found out.
    """

    urgent = True

    def __init__(
        self, machine: Machine, sequence: Sequence, regions: Mapping[str, HostRegion], numbers: Mapping[str, int]
    ) -> None:
        super().__init__("the sequence")
        self.machine = machine
        self.sequence = sequence
        self.regions = regions
        self.numbers = numbers
        self.tasks: dict[int, Task] = {}
        self.writing: list[Task] = []
        self.ended = False

    def run(self) -> Iterator[None]:
        machine = self.machine
        for step in self.sequence.steps:
            match step:
                case Transfer():
                    self._start(step)
                case Await():
                    task = self._task(step.task)
                    if not task.transfer.token:
                        raise SimulationError(f"{task.name} is awaited and gives no token.")
                    while not task.done:
                        self.block(task.finished, f"{task.name} on {task.transfer.fifo}")
                        self.provider = f"stream {task.transfer.fifo}"
                        yield
                case Free():
                    task = self._task(step.task)
                    if task.transfer.way == "drain":
                        raise SimulationError(f"{task.name} is freed; only an await tells that its data has arrived.")
                    if not task.done:
                        raise SimulationError(f"{task.name} is freed while its data is still moving.")
                case WriteWord():
                    self._write(step.buffer, step.index, step.value)
                case Sync():
                    for buffer, index, word in step.words:
                        self._write(buffer, index, self.numbers[word.name])
                case SetBarrier():
                    machine.locks[step.lock].set(step.value)
                    # Cores go on at once, before the next step: words that come later come too late.
                    self.urgent = False
                    machine.scheduler.ready(self)
                    yield
                    self.urgent = True
                case AwaitToken():
                    port = machine.controls[step.fifo]
                    while not port.tokens.count:
                        self.block(port.tokens, f"a token of {step.fifo}")
                        yield
                    port.tokens.count -= 1
        self.ended = True
        self.waiting = ""

    def _task(self, number: int) -> Task:
        if number not in self.tasks:
            raise SimulationError(f"task {number} is waited for and was never started.")
        return self.tasks[number]

    def _write(self, buffer: str, index: int, value: int) -> None:
        mem = self.machine.buffers[buffer]
        mem.data[index] = value
        mem.mask[index] = False

    def _start(self, step: Transfer) -> None:
        machine = self.machine
        if step.task in self.tasks:
            raise SimulationError(f"task {step.task} is started twice.")
        shim = machine.shims.get((step.fifo, step.way))
        if shim is None:
            raise SimulationError(f"task {step.task} is to {step.way} {step.fifo}, which has no such end on a shim.")
        offset = 0 if step.offset_by is None else self.numbers[step.offset_by.name]
        length = None if step.length_by is None else self.numbers[step.length_by.name] * step.unit
        region = self._typed(self.regions[step.operand], step)
        task = Task(step, region, offset, length, machine.scheduler)
        if step.way == "drain":
            self.writing = [other for other in self.writing if not other.done]
            for other in self.writing:
                if _overlap(task, other):
                    raise Race(f"{task.name} writes where {other.name}, which is not done, writes too.")
            self.writing.append(task)
        self.tasks[step.task] = task
        shim.push(task)

    def _typed(self, region: HostRegion, step: Transfer) -> HostRegion:
        """The tensor in the fifo's dtype, where both have numbers of the same size."""
        if any(step.fifo == port.data.name for port in self.machine.controls.values()):
            return region
        dtype = self.machine.array.fifo(step.fifo).type.dtype
        if region.data.dtype == dtype:
            return region
        if region.data.dtype.itemsize != dtype.itemsize:
            raise SimulationError(f"{step.operand} of {region.data.dtype} on {step.fifo}, which carries {dtype}.")
        return HostRegion(region.name, region.data.view(dtype), region.mask, region.base)


def _overlap(one: Task, other: Task) -> bool:
    (a, b), (c, d) = one.span(), other.span()
    if b <= c or d <= a:
        return False
    size = one.region.data.itemsize
    if size != other.region.data.itemsize:
        return True
    first = one.region.base // size + one.addresses()
    second = other.region.base // size + other.addresses()
    return bool(np.intersect1d(first, second).size)
