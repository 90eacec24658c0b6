"""Does a design fit a device: memory, channels, locks, descriptors, queues, and what one descriptor can walk.

Every refusal says the number used, the number there is, and which fifo, worker or keyword to change. Some of these the
vendor's tools let pass: a transfer that is not whole words, an acquire beyond the depth, a queue that runs over.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from iron_core.array.descriptors import BdLimits, Descriptor
from iron_core.array.design import ArrayDesign, Design
from iron_core.array.memory import memory
from iron_core.array.placer import place
from iron_core.array.pools import End, FifoPools, Place, TilePlacement, declared_depth, fifo_pools
from iron_core.array.program import Acquire, AcquireLock, Call, RaiseBarrier, ReleaseLock, WaitBarrier, walk
from iron_core.array.sequence import Await, Free, SetBarrier, Transfer
from iron_core.declare.formats import as_dtype
from iron_core.devices import (
    LENGTH_UNIT,
    LOCK_VALUE,
    PADDING,
    QUEUE,
    REPEATS,
    WORD,
    Device,
    TileKind,
    device,
)
from iron_core.errors import Unresolvable


def check(design: Design | ArrayDesign, dev: Device | str, placement: TilePlacement | None = None) -> dict[str, Place]:
    """The places at which it was found to fit (those given, or the placer's). Unresolvable otherwise."""
    array = design.array if isinstance(design, Design) else design
    dev = device(dev)
    _kernels(array, dev)
    _programs(array)
    places = dict(placement) if placement is not None else place(array, dev)
    limits = _Limits(array, dev, places)
    limits.channels()
    limits.controls()
    limits.memory()
    limits.locks()
    limits.descriptors()
    for end in limits.found.ends:
        limits.walk(end)
    if isinstance(design, Design):
        limits.sequence(design)
    return places


def _kernels(array: ArrayDesign, dev: Device) -> None:
    for kernel in array.kernels:
        if dev.family in kernel.unsupported:
            raise Unresolvable(f"{array.name}: kernel {kernel.symbol} does not run on {dev}; it is refused for {dev.family}.")
    for core in array.cores:
        for symbol in sorted({s.kernel for s in walk(core.program) if isinstance(s, Call)}):
            needed = array.kernel(symbol).stack
            if core.stack < needed:
                raise Unresolvable(
                    f"{array.name}: core {core.name} has stack_size={core.stack} and kernel {symbol} needs {needed}. "
                    f"Give the Worker stack_size={needed} or more."
                )


def _programs(array: ArrayDesign) -> None:
    """What cores acquire is there, and what they add to locks can be counted."""
    for core in array.cores:
        for s in walk(core.program):
            if isinstance(s, Acquire):
                fifo = array.fifo(s.fifo)
                number = 0 if s.port == "produce" else 1 + fifo.consumers.index(core.tile)
                depth = declared_depth(fifo, number)
                if s.count > depth:
                    raise Unresolvable(
                        f"{array.name}: core {core.name} acquires {s.count} objects of fifo {s.fifo}, whose depth is {depth}. "
                        f"Give the fifo depth={s.count} or more."
                    )
            elif isinstance(s, (WaitBarrier, RaiseBarrier, AcquireLock, ReleaseLock)) and s.value > LOCK_VALUE:
                raise Unresolvable(f"{array.name}: core {core.name} counts a lock to {s.value}; legal: up to {LOCK_VALUE}.")
    for lock in array.locks:
        if lock.initial > LOCK_VALUE:
            raise Unresolvable(f"{array.name}: lock {lock.name} starts at {lock.initial}; legal: up to {LOCK_VALUE}.")


class _Limits:
    """A placed array against the tiles of a device."""

    def __init__(self, array: ArrayDesign, dev: Device, at: TilePlacement) -> None:
        self.array, self.dev, self.at = array, dev, at
        self.found: FifoPools = fifo_pools(array, at)
        self.kinds = {tile.name: tile.kind for tile in array.tiles}

    def limit(self, kind: str) -> TileKind:
        tile = {"shim": self.dev.shim, "mem": self.dev.memtile, "core": self.dev.core}[kind]
        assert tile is not None
        return tile

    def where(self, tile: str) -> str:
        col, row = self.at[tile]
        kind = self.kinds[tile]
        core = self.array.core_at(tile)
        if core is not None:
            return f"core {core.name} (column {col}, row {row})"
        return f"the {'memory tile' if kind == 'mem' else kind} of column {col}" if kind != "core" else f"core tile ({col}, {row})"

    def tiles(self) -> Iterable[tuple[str, list[str]]]:
        """One name per place, with the names of all tiles there."""
        places: dict[Place, list[str]] = {}
        for tile in self.array.tiles:
            places.setdefault(self.at[tile.name], []).append(tile.name)
        return ((names[0], names) for names in places.values())

    # -- what tiles have ---------------------------------------------------------------------------

    def channels(self) -> None:
        for one, names in self.tiles():
            there = self.limit(self.kinds[one]).channels
            for way in ("in", "out"):
                ends = [end for end in self.found.ends if end.tile in names and end.way == way]
                fifos = [end.fifo for end in ends] + [c.name for c in self.array.controls if way == "out" and c.source in names]
                if len(fifos) > there or any(end.channel >= there for end in ends):
                    raise Unresolvable(
                        f"{self.array.name}: {self.where(one)} has {len(fifos)} fifos {way} by DMA ({', '.join(fifos)}); there "
                        f"are {there} channels {way}. Join or split them on a memory tile, or pin them to other tiles."
                    )

    def controls(self) -> None:
        """The descriptors of a shim that packets drive are theirs."""
        for control in self.array.controls:
            there = [end.fifo for end in self.found.ends if self.at[end.tile] == self.at[control.target]]
            others = sorted(set(there) - {control.fifo})
            if others:
                raise Unresolvable(
                    f"{self.array.name}: fifos {', '.join(others)} are on {self.where(control.target)}, whose descriptors the "
                    f"packets of control flow {control.name} write. Pin them to other columns."
                )

    def memory(self) -> None:
        for held in memory(self.array, self.dev, self.found, self.at):
            if not held.fits:
                raise Unresolvable(
                    f"{self.array.name}: {self.where(held.tile)} needs {held.used} bytes of memory and has {held.there} "
                    f"({held.listed}). Use smaller objects (a tile= or tile_size), or a smaller depth=."
                )

    def locks(self) -> None:
        for one, names in self.tiles():
            kind = self.kinds[one]
            pools = sum(pool.locks for pool in self.found.pools if pool.tile in names)
            shims = 2 * sum(end.tile in names and not end.pool for end in self.found.ends)
            own = sum(lock.tile in names for lock in self.array.locks)
            there = self.limit(kind).locks
            if pools + shims + own > there:
                raise Unresolvable(
                    f"{self.array.name}: {self.where(one)} needs {pools + shims + own} locks and has {there} ({pools + shims} of "
                    f"its fifos, {own} locks and barriers). Use fewer fifos, or fewer parts of a join or split."
                )
        for pool in self.found.pools:
            if pool.depth * pool.repeat > LOCK_VALUE:
                raise Unresolvable(
                    f"{self.array.name}: fifo {pool.name} counts {pool.depth} objects sent {pool.repeat} times each, "
                    f"{pool.depth * pool.repeat} in all; a lock counts to {LOCK_VALUE}. Use a smaller depth= or repeat_count=."
                )

    def descriptors(self) -> None:
        for one, names in self.tiles():
            kind = self.kinds[one]
            if kind == "shim":
                continue
            ends = [end for end in self.found.ends if end.tile in names and end.descriptors]
            # A memory tile's even channels have one half of its descriptors, its odd ones the other.
            halves = [ends] if kind == "core" else [[e for e in ends if e.channel % 2 == odd] for odd in (0, 1)]
            there = self.limit(kind).descriptors // len(halves)
            for half in halves:
                count = sum(end.descriptors for end in half)
                if count > there:
                    listed = ", ".join(f"{end.fifo}: {end.descriptors}" for end in sorted(half, key=lambda e: -e.descriptors)[:6])
                    which = "" if kind == "core" else " of every other channel"
                    raise Unresolvable(
                        f"{self.array.name}: {self.where(one)} needs {count} descriptors{which} and has {there} ({listed}). "
                        "Use a smaller depth= or repeat_count=, or fewer parts."
                    )

    # -- what descriptors walk -----------------------------------------------------------------------

    def walk(self, end: End) -> None:
        """The static descriptors of an end: whole words, and an order that one descriptor holds."""
        pool = self.found.pool_of(end)
        if not end.way or pool is None:
            return
        fifo = self.array.fifo(end.fifo)
        keyword = "dims_from_stream" if end.number else "dims_to_stream"
        itemsize = pool.type.dtype.itemsize
        kind = self.kinds[end.tile]
        limits = BdLimits.of(self.limit(kind), itemsize)
        dims = end.dims
        most = self.limit(kind).dims
        if len(dims) > most:
            raise Unresolvable(
                f"{self.array.name}: fifo {end.fifo}: {keyword} has {len(dims)} dimensions; a {kind} tile's descriptors have {most}."
            )
        parts = pool.parts if end.part is None else (pool.parts[end.part],)
        for offset, elements in parts:
            why = limits.why_not(Descriptor.of(offset, dims or ((elements, 1),)))
            if why is not None:
                what = f"{keyword}={dims}" if dims else f"objects of {elements} {pool.type.dtype_name}"
                raise Unresolvable(f"{self.array.name}: fifo {end.fifo} on {self.where(end.tile)}: {what}: {why}.")
        if fifo.repeat > REPEATS and end.number == 0:
            raise Unresolvable(f"{self.array.name}: fifo {end.fifo}: repeat_count={fifo.repeat}; legal: up to {REPEATS}.")
        if fifo.pad and end.number == 0:
            self.padding(end.fifo, fifo.pad, itemsize)

    def padding(self, name: str, pad: tuple[tuple[int, int], ...], itemsize: int) -> None:
        """What a descriptor's padding fields hold: whole words innermost, elements further out, none in a fourth dimension."""
        most = (*(0 for _ in pad[: -len(PADDING)]), *PADDING[-len(pad) :])
        for i, (sides, there) in enumerate(zip(pad, most, strict=True)):
            inner = i == len(pad) - 1
            for side in sides:
                if inner and side * itemsize % WORD:
                    raise Unresolvable(
                        f"{self.array.name}: fifo {name}: the innermost padding of {side} is {side * itemsize} bytes; legal: whole "
                        f"{WORD}-byte words."
                    )
                count = side * itemsize // WORD if inner else side
                if not 0 <= count <= there:
                    raise Unresolvable(
                        f"{self.array.name}: fifo {name}: pad_dimensions={pad}: {count} {'words' if inner else 'numbers'} in "
                        f"dimension {i}; a descriptor holds {there}."
                    )

    # -- the sequence --------------------------------------------------------------------------------

    def sequence(self, design: Design) -> None:
        arguments = {one.operand: one for one in design.sequence.arguments}
        live = _Live(self)
        for step in design.sequence.steps:
            if isinstance(step, Transfer):
                self.transfer(step, as_dtype(arguments[step.operand].dtype_name).itemsize)
                live.start(step)
            elif isinstance(step, (Await, Free)):
                live.end(step)
            elif isinstance(step, SetBarrier) and not 0 <= step.value <= LOCK_VALUE:
                raise Unresolvable(f"{self.array.name}: barrier {step.lock} is set to {step.value}; legal: up to {LOCK_VALUE}.")

    def transfer(self, step: Transfer, itemsize: int) -> None:
        what = f"{self.array.name}: {step.way} of {step.operand} by fifo {step.fifo}"
        limits = BdLimits.of(self.limit("shim"), itemsize)
        for one in step.descriptors:
            why = limits.why_not(one)
            if why is not None:
                raise Unresolvable(f"{what}: {one}: {why}.")
        if step.length_by is not None and step.unit * itemsize % LENGTH_UNIT:
            raise Unresolvable(
                f"{what}: a call gives its length in units of {step.unit} elements, {step.unit * itemsize} bytes; legal: multiples "
                f"of {LENGTH_UNIT} bytes, {LENGTH_UNIT // itemsize} elements."
            )


@attrs.define
class _Task:
    step: Transfer
    shim: Place
    queue: tuple[Place, str, int]
    entries: int


class _Live:
    """Which descriptors and queue entries of the shims the running tasks hold."""

    def __init__(self, limits: _Limits) -> None:
        self.limits = limits
        self.tasks: dict[int, _Task] = {}
        self.queued: dict[tuple[Place, str, int], list[int]] = {}
        self.ends: dict[str, tuple[Place, str, int]] = {}
        for end in limits.found.ends:
            if limits.kinds[end.tile] == "shim":
                self.ends[end.fifo] = (limits.at[end.tile], end.way, end.channel)
        for control in limits.array.controls:
            self.ends[control.name] = (limits.at[control.source], "out", 0)

    def start(self, step: Transfer) -> None:
        queue = self.ends[step.fifo]
        # Descriptors that iterate are started one by one: a task repeats as a whole.
        chained = len(step.descriptors) == 1 or all(one.sizes[0] == 1 for one in step.descriptors)
        self.tasks[step.task] = _Task(step, queue[0], queue, 1 if chained else len(step.descriptors))
        self.queued.setdefault(queue, []).append(step.task)
        name = self.limits.array.name
        what = f"{name}: task {step.task}, {step.way} of {step.operand} by fifo {step.fifo}"
        waiting = [task for task in self.queued[queue] if task in self.tasks]
        entries = sum(self.tasks[task].entries for task in waiting)
        if entries > QUEUE:
            others = sorted({self.tasks[task].step.fifo for task in waiting})
            raise Unresolvable(
                f"{what}: {entries} tasks wait on that channel ({', '.join(others)}); its queue holds {QUEUE}. Await earlier ones "
                "first: finish their group, or give the transfer managed=False."
            )
        held = {task: len(one.step.descriptors) for task, one in self.tasks.items() if one.shim == queue[0]}
        total, there = sum(held.values()), self.limits.limit("shim").descriptors
        if total > there:
            by: dict[str, int] = {}
            for task, count in held.items():
                fifo = self.tasks[task].step.fifo
                by[fifo] = by.get(fifo, 0) + count
            listed = ", ".join(f"{fifo}: {count}" for fifo, count in by.items())
            raise Unresolvable(
                f"{what}: {total} descriptors are in use on the shim of column {queue[0][0]} ({listed}); it has {there}. Await or "
                "free tasks before (managed=False does), use patterns of fewer descriptors, or spread lanes over more columns."
            )

    def end(self, step: Await | Free) -> None:
        one = self.tasks.pop(step.task, None)
        if one is None:
            return
        queue = self.queued[one.queue]
        # A channel works in order: what was started before an awaited task has left its queue.
        if step.task not in queue:
            return
        at = queue.index(step.task)
        self.queued[one.queue] = queue[at + 1 :] if isinstance(step, Await) else queue[:at] + queue[at + 1 :]
