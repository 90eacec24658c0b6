"""What a design takes, without events and without data.

Every core's program is walked once, its loops in closed form; every stream is the times at which its objects have passed. An object
leaves when it is there and the one before has left, a core goes on when what it waits for has come: both are running maxima over
sums, so that a lane of thousands of objects is a few passes over arrays. The controller is taken step by step, for its waits decide
what it starts next.

Room for what is sent is taken to be there, but where a core holds all that there is, and where a shim has no task yet. Shim channels
share the way to host memory evenly; what is written is not weighed against what is read at each moment, but over the whole run. What
that hides is in the events of `iron_sim.timing.events`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np

from iron_core.array.design import ArrayDesign, ControlData, CoreData, Design
from iron_core.array.kernel import Kernel
from iron_core.array.pools import End, Pool, TilePlacement, fifo_pools
from iron_core.array.program import Call, Statement, WaitBarrier, walk
from iron_core.array.sequence import Await, AwaitToken, SetBarrier, Sync, Transfer, WriteWord
from iron_core.declare.formats import as_dtype
from iron_core.devices import WORD
from iron_sim.timing.arrivals import Arriving, Channel, Core, Fabric, Given, Objects, Room, Starved, Stream
from iron_sim.timing.banks import shared_rates
from iron_sim.timing.costs import statement_cycles, step_cycles
from iron_sim.timing.hardware import Hardware, hardware
from iron_sim.timing.kernels import kernel_cycles
from iron_sim.timing.track import CoreEnd, Track, track

#: Resources, in the order in which the first of equals is named.
RESOURCES = ("controller", "fabric", "streams", "cores")


@attrs.frozen
class Estimate:
    """us: microseconds of one run. bound: the resource that is at work the longest, "fill" where that is less than half of the time.

    parts: microseconds that each resource is at work: the controller, the fabric to host memory, the busiest stream and the busiest
    core; under "fill" what the longest of them leaves.
    """

    us: float
    bound: str
    parts: Mapping[str, float]


def estimate(
    design: Design,
    kernels: Mapping[str, Kernel],
    placement: TilePlacement | None = None,
    numbers: Mapping[str, int] | None = None,
) -> Estimate:
    """What one run of a design takes on its array, configured.

    kernels: what its cores call, by symbol. placement: of its tiles, as `fit` has it. numbers: of all its per-call words, by name.
    """
    return _Run(design, kernels, placement, numbers or {}).estimate()


class _All:
    """Objects of which every part is there."""

    def __init__(self, parts: list[Objects]) -> None:
        self.parts = parts

    def times(self, n: int) -> np.ndarray:
        return np.max([part.times(n)[:n] for part in self.parts], axis=0)


class _Run:
    def __init__(
        self, design: Design, kernels: Mapping[str, Kernel], placement: TilePlacement | None, numbers: Mapping[str, int]
    ) -> None:
        self.array: ArrayDesign = design.array
        self.hw: Hardware = hardware(self.array.dev)
        hw, clock = self.hw, self.hw.clock.value
        self.sequence = design.sequence
        self.rates = shared_rates(design, hw)
        self._calls = {symbol: kernel_cycles(kernel, hw) for symbol, kernel in kernels.items()}
        self.places = placement or {}
        self.numbers = numbers
        found = fifo_pools(self.array, placement)
        self.pools = {pool.name: pool for pool in found.pools}
        self.ends = {(end.fifo, end.number): end for end in found.ends}
        self.fifos = {fifo.name: fifo for fifo in self.array.fifos}
        self.kinds = {tile.name: tile.kind for tile in self.array.tiles}
        self.words: dict[tuple[str, int], int] = {
            (buffer.name, index): int(value)
            for buffer in self.array.buffers
            if buffer.type.dtype.kind in "iu"
            for index, value in enumerate(buffer.initial)
            if value
        }
        self._items = {argument.operand: as_dtype(argument.dtype_name).itemsize for argument in self.sequence.arguments}
        self._written: dict[str, float] = {}
        #: By fifo that control packets drive, the number of each batch's last row.
        self._tokens: dict[str, list[int]] = {}
        self._full: dict[tuple[str, int], Objects] = {}
        self._streams: dict[str, Any] = {}
        #: By control flow: the fifo it drives, rows of each batch, bytes of a row, and words of each batch.
        self.gathers = {data.name: self._gathers(data) for data in self.array.controls}
        self.moved = {"fill": 0.0, "drain": 0.0}
        self.by_fifo: dict[str, float] = {}
        for transfer in self.sequence.transfers():
            self._count(transfer.fifo, transfer.way, self.nbytes(transfer))
        for fifo, batches, row, _ in self.gathers.values():
            self._count(fifo, "fill", sum(batches) * row)
        gbs, most = clock / 1e3, self._read_gbs()
        self.fabric = Fabric(
            lambda demand: min(hw.shared(demand * gbs), most / (demand * gbs)),
            hw.cycles(hw.read_latency.value / 1e3),
            hw.cycles(hw.read_task.value / 1e3),
        )
        drains = sum(self._way(name) == "drain" for name in self.by_fifo)
        self.write_rate = min(hw.stream_width.value, hw.fabric_write.value * 1e3 / clock / max(1, drains))
        self.cores = {core.tile: self._core(core) for core in self.array.cores}

    def _count(self, fifo: str, way: str, nbytes: float) -> None:
        self.moved[way] += nbytes
        self.by_fifo[fifo] = self.by_fifo.get(fifo, 0.0) + nbytes

    def _way(self, fifo: str) -> str:
        return "fill" if fifo not in self.fifos or self.kinds[self.fifos[fifo].producer] == "shim" else "drain"

    def _read_gbs(self) -> float:
        """What reads have, beside the writes of this design. What there is room for is read before anything is written."""
        filled, alone = self.moved["fill"], self.hw.fabric_read.value
        if not filled:
            return alone
        beside = min(alone, self.hw.fabric_total.value * filled / (filled + self.moved["drain"]))
        into = {end.pool for end in self.ends.values() if end.pool and end.number and self._way(end.fifo) == "fill"}
        ahead = min(1.0, sum(self.pools[name].depth * self.pools[name].type.nbytes for name in into) / filled)
        return 1 / (ahead / alone + (1 - ahead) / beside)

    def nbytes(self, transfer: Transfer) -> float:
        """What a transfer moves."""
        item, by = self._items[transfer.operand], transfer.length_by
        if by is None:
            return transfer.elements * item
        (descriptor,) = transfer.descriptors
        turns = descriptor.sizes[0]
        return turns * min(self.numbers[by.name] * transfer.unit, descriptor.size // turns) * item

    def _gathers(self, data: ControlData) -> tuple[str, list[int], int, list[int]]:
        argument = next(argument for argument in self.sequence.arguments if argument.control is not None)
        feed = next(lane.index for lane in self.array.lanes if lane.fifo == data.name)
        made = argument.control
        assert made is not None
        return data.fifo, made.batches(feed), made.row_bytes, [count for _, count in made.parts(feed)]

    # -- the array -------------------------------------------------------------------------------------

    def full(self, pool: Pool, part: int) -> Objects:
        """When the objects of a pool, or their part, are full."""
        found = self._full.get((pool.name, part))
        if found is None:
            found = self._full[pool.name, part] = self._filled(pool, part)
        return found

    def _filled(self, pool: Pool, part: int) -> Objects:
        for end in self.ends.values():
            if end.pool != pool.name:
                continue
            if end.number == 0 and self.kinds[end.tile] == "core":
                core, ends = self.cores[end.tile]
                return Given(core, ends[end.fifo, "produce"], pool.initial)
            if end.way == "in" and end.part in (None, part):
                item = pool.type.dtype.itemsize
                start, elements = pool.parts[part]
                whole = end.part is not None or self._whole(end, pool)
                stop = (elements if end.part is not None else pool.type.elements if whole else start + elements) * item
                each = (elements if end.part is not None else pool.type.elements) * item
                return Arriving(self.stream(end.fifo), stop, each, self.latency(end), pool.initial)
        raise Starved(pool.name)

    def _whole(self, end: End, pool: Pool) -> bool:
        """Does its DMA take all parts of an object at once?"""
        return bool(end.dims) and len(pool.parts) > 1 and math.prod(n for n, _ in end.dims) != pool.parts[0][1]

    def stream(self, fifo: str) -> Any:
        """What a fifo's producer sends."""
        found = self._streams.get(fifo)
        if found is None:
            found = self._streams[fifo] = self._sent(fifo)
        return found

    def _sent(self, fifo: str) -> Channel | Stream:
        end = self.ends.get((fifo, 0))
        if end is None or self.kinds[end.tile] == "shim":  # a control flow has no ends
            return self.fabric.channel(self._read_width(fifo), self._apart(fifo))
        pool, item = self.pools[end.pool], end.type.dtype.itemsize
        numbers = [end.part] if end.part is not None else range(len(pool.parts))
        dims, pad = [n for n, _ in end.dims], self.fifos[fifo].pad
        if self._whole(end, pool):
            parts: list[tuple[Objects, float]] = [(_All([self.full(pool, n) for n in numbers]), pool.type.nbytes)]
        else:
            parts = [(self.full(pool, n), pool.parts[n][1] * item) for n in numbers]
            if dims:
                sent = math.prod(n + before + after for n, (before, after) in zip(dims, pad or ((0, 0),) * len(dims), strict=True))
                parts = [(objects, sent * item) for objects, _ in parts]
        shim = self._into_shim(fifo)
        rate = self.write_rate if shim else self.hw.stream_width.value
        again = self.hw.cycles(self.hw.write_task.value / 1e3) if shim else None
        return Stream(parts, pool.repeat, rate, self.hw.descriptor_chain.value, again)

    def _read_width(self, fifo: str) -> float:
        """Bytes per cycle of a channel that reads host memory: it pauses after every object of a receiver."""
        hw = self.hw
        width = min(hw.stream_width.value * hw.read_fill.value, self.rates.get(fifo, math.inf) / hw.clock.value * 1e3)
        receivers = [end for end in self.ends.values() if end.fifo == fifo and end.pool]
        pieces = [self.pools[end.pool].parts[end.part or 0][1] * end.type.dtype.itemsize for end in receivers]
        return 1 / (1 / width + hw.descriptor_chain.value / min(pieces)) if pieces else width

    def _apart(self, fifo: str) -> float | None:
        """Cycles between gathered rows of a channel, where addresses of all feeds' are translated in turn."""
        rows = [row for driven, _, row, _ in self.gathers.values() if driven == fifo]
        if not rows:
            return None
        turn = self.hw.cycles(self.hw.translation.value / 1e3) * len(self.gathers)
        return max(self.hw.cycles(self.hw.read_task.value / 1e3), turn - rows[0] / self._read_width(fifo))

    def latency(self, end: End) -> float:
        """Cycles from a producer's memory to this end's."""
        source = self.ends[end.fifo, 0].tile
        hops = 2
        if source in self.places and end.tile in self.places:
            hops += sum(abs(a - b) for a, b in zip(self.places[source], self.places[end.tile], strict=True))
        return self.hw.stream_hop.value * hops + self.hw.tile_memory_latency.value

    def _core(self, data: CoreData) -> tuple[Core, dict[CoreEnd, int]]:
        ends = [end for end in self.ends.values() if end.tile == data.tile]
        numbers = {(end.fifo, end.port): number for number, end in enumerate(ends)}
        waits = any(isinstance(statement, WaitBarrier) for statement in walk(data.program))
        core = Core(data.name, len(ends), None if waits or not data.forever else lambda: self._track(data))
        core.stalls = {number: self._back(end) for number, end in enumerate(ends) if end.way}
        if not waits and not data.forever:
            core.begin(0.0, self._track(data))
        return core, numbers

    def _back(self, end: End) -> float:
        """Cycles until what a core releases of this end has come back, where nothing else is under way."""
        rate = self.hw.stream_width.value
        if end.number == 0:
            return end.nbytes / rate
        fill = self.hw.read_fill.value if self.kinds[self.ends[end.fifo, 0].tile] == "shim" else 1.0
        return end.nbytes / (rate * fill) + self.latency(end)

    def _track(self, data: CoreData) -> Track:
        _, numbers = self.cores[data.tile]
        ends = [end for end in self.ends.values() if end.tile == data.tile]
        waited = frozenset(number for number, end in enumerate(ends) if end.number or self._into_shim(end.fifo))
        depths = {number: end.depth for number, end in enumerate(ends) if end.way}
        return track(data.program, numbers, self.words, self._cost, waited, depths)

    def _into_shim(self, fifo: str) -> bool:
        return any(self.kinds[tile] == "shim" for tile in self.fifos[fifo].consumers)

    def _connect(self) -> None:
        """Where cores' objects come from."""
        for tile, (core, numbers) in self.cores.items():
            for end in self.ends.values():
                if end.tile == tile and end.number:
                    core.sources[numbers[end.fifo, end.port]] = self.full(self.pools[end.pool], 0)
                elif end.tile == tile and self._into_shim(end.fifo):
                    each = end.nbytes / self.write_rate + self.hw.descriptor_chain.value
                    core.sources[numbers[end.fifo, end.port]] = Room(self.stream(end.fifo), end.depth, each)

    def _cost(self, statement: Statement) -> float:
        return self._calls[statement.kernel] if isinstance(statement, Call) else statement_cycles(statement, self.hw)

    # -- the sequence ----------------------------------------------------------------------------------

    def estimate(self) -> Estimate:
        self._connect()
        clock, work = 0.0, 0.0
        sent: dict[str, float] = {}
        awaited: dict[str, int] = {}
        ends: dict[int, tuple[str, float]] = {}
        for step in self.sequence.steps:
            cycles = step_cycles(step, self.hw)
            clock, work = clock + cycles, work + cycles
            if isinstance(step, Transfer):
                nbytes = self.nbytes(step)
                begins = clock if step.way == "fill" else clock + self.hw.channel_start.value
                # A channel that reads pauses between descriptors as it does between tasks.
                pieces = len(step.descriptors) if step.way == "fill" else 1
                for _ in range(pieces):
                    self.stream(step.fifo).push(begins, nbytes / pieces)
                sent[step.fifo] = sent.get(step.fifo, 0.0) + nbytes
                if step.fifo in self.gathers:
                    self._gather(step.fifo, sent[step.fifo])
                ends[step.task] = (step.fifo, sent[step.fifo])
            elif isinstance(step, Await):
                clock = max(clock, self._done(*ends[step.task]))
            elif isinstance(step, AwaitToken):
                channel, number = self.stream(step.fifo), awaited.get(step.fifo, 0)
                awaited[step.fifo] = number + 1
                clock = max(clock, float(channel.when(np.array([channel.ends[self._tokens[step.fifo][number]]]))[0]))
            elif isinstance(step, WriteWord):
                self.words[step.buffer, step.index] = step.value
            elif isinstance(step, Sync):
                for buffer, index, word in step.words:
                    self.words[buffer, index] = self.numbers[word.name]
            elif isinstance(step, SetBarrier):
                self._begin(step.lock, clock)
        # What nobody waited for ends too.
        return self._told(max([clock, *(self._done(*end) for end in ends.values() if end[0] not in self.gathers)]), work)

    def _gather(self, control: str, nbytes: float) -> None:
        """A batch's control words are under way: once they have arrived, its rows are read."""
        fifo, batches, row, words = self.gathers[control]
        channel = self.stream(fifo)
        tokens = self._tokens.setdefault(fifo, [])
        number = len(tokens)
        arrived = float(self.stream(control).when(np.array([nbytes]))[0])
        written = max(arrived, self._written.get(control, 0.0)) + self.hw.cycles(WORD * words[number] / self.hw.register_rate.value / 1e3)
        self._written[control] = written
        for _ in range(batches[number]):
            channel.push(written, row)
        tokens.append(len(channel.ends) - 1)

    def _done(self, fifo: str, nbytes: float) -> float:
        """When a task has ended."""
        gone = float(self.stream(fifo).when(np.array([nbytes]))[0])
        if self._way(fifo) == "fill":
            return gone
        end = next(e for e in self.ends.values() if e.fifo == fifo and self.kinds[e.tile] == "shim")
        return gone + self.latency(end) + self.hw.cycles(self.hw.write_latency.value / 1e3)

    def _begin(self, lock: str, clock: float) -> None:
        """The cores that wait for a barrier begin a run."""
        tile = next(one.tile for one in self.array.locks if one.name == lock)
        data = self.array.core_at(tile)
        assert data is not None
        self.cores[tile][0].begin(clock, self._track(data))

    def _told(self, clock: float, work: float) -> Estimate:
        hw = self.hw
        gbs = {"fill": hw.fabric_read, "drain": hw.fabric_write}
        fabric = max(*(self.moved[way] / gbs[way].value for way in gbs), sum(self.moved.values()) / hw.fabric_total.value)
        parts = {
            "controller": hw.us(work),
            "fabric": fabric / 1e3,
            "streams": hw.us(max(self.by_fifo.values(), default=0.0) / hw.stream_width.value),
            "cores": hw.us(max((core.busy for core, _ in self.cores.values()), default=0.0)),
        }
        bound = max(RESOURCES, key=lambda name: parts[name])
        us = hw.us(clock)
        longest = parts[bound]
        return Estimate(us, bound if 2 * longest >= us else "fill", {**parts, "fill": us - longest})
