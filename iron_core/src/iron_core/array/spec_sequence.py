"""Well-formed sequences: what they move arrives in whole objects, every task ends once, and words come before barriers."""

from __future__ import annotations

import math

from iron_core.array.design import ArrayDesign, Design, FifoData
from iron_core.array.expression import Const
from iron_core.array.pools import FifoPools, fifo_pools
from iron_core.array.program import Load, Local, WaitBarrier, walk
from iron_core.array.sequence import Await, AwaitToken, Free, SetBarrier, Sync, Transfer, Word, WriteWord
from iron_core.declare.formats import as_format
from iron_core.errors import DeclarationError


def check_sequence(design: Design) -> None:
    """DeclarationError at the first rule that a design's sequence breaks."""
    _Sequence(design).run()


class _Sequence:
    def __init__(self, design: Design) -> None:
        self.array: ArrayDesign = design.array
        self.steps = design.sequence.steps
        self.words = design.sequence.words
        self.arguments = {argument.operand: argument for argument in design.sequence.arguments}
        self.fifos = {fifo.name: fifo for fifo in self.array.fifos}
        self.pools: FifoPools = fifo_pools(self.array)
        self.shims = {tile.name for tile in self.array.tiles if tile.kind == "shim"}
        self.controls = {control.name for control in self.array.controls}
        self.driven = {control.fifo for control in self.array.controls}
        self.open: dict[int, bool] = {}  # running tasks -> can they be awaited
        self.done: set[int] = set()
        self.bytes: dict[str, int] = {}  # moved through each fifo so far

    def refuse(self, words: str) -> None:
        raise DeclarationError(f"sequence of {self.array.name}: {words}.")

    def run(self) -> None:
        names = [word.name for word in self.words]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            self.refuse(f"two per-call words are named {twice}")
        for step in self.steps:
            if isinstance(step, Transfer):
                self.transfer(step)
            elif isinstance(step, AwaitToken) and step.fifo not in self.driven:
                self.refuse(f"a token of fifo {step.fifo} is awaited, whose channel no control flow drives")
            elif isinstance(step, (Await, Free)):
                self.end(step)
        if self.open:
            self.refuse(f"task {min(self.open)} is neither awaited nor freed; its descriptors stay taken for every later one")
        for name, count in self.bytes.items():
            unit, why = self.unit(self.fifos[name])
            if count % unit:
                self.refuse(f"{count} bytes go through fifo {name}; legal: whole multiples of {unit}, {why}")
        self.barriers()

    # -- tasks -------------------------------------------------------------------------------------

    def start(self, task: int, token: bool, what: str) -> None:
        if task in self.open or task in self.done:
            self.refuse(f"two tasks have the number {task}; the second is {what}")
        self.open[task] = token

    def end(self, step: Await | Free) -> None:
        verb = "awaited" if isinstance(step, Await) else "freed"
        if step.task in self.done:
            self.refuse(f"task {step.task} is {verb} after it was awaited or freed before; legal: once")
        if step.task not in self.open:
            self.refuse(f"task {step.task} is {verb} before it starts")
        if isinstance(step, Await) and not self.open[step.task]:
            self.refuse(f"task {step.task} is awaited, but gives no token; start it with wait=True")
        del self.open[step.task]
        self.done.add(step.task)

    def transfer(self, step: Transfer) -> None:
        what = f"{step.way} of {step.operand} by fifo {step.fifo}"
        self.start(step.task, step.token, what)
        itemsize = self.elements(step, what)
        fifo = self.fifos.get(step.fifo)
        if step.fifo in self.controls:
            if step.way != "fill" or self.arguments[step.operand].control is None:
                self.refuse(f"{what}: a control flow is filled, with the control words of a gather")
            return
        if fifo is None:
            self.refuse(f"{what}: no such fifo")
        assert fifo is not None
        if step.fifo in self.driven:
            self.refuse(f"{what}: control packets drive its channel")
        end = "fill" if fifo.producer in self.shims else "drain"
        if not self.shims & set(fifo.ends()) or step.way != end:
            where = f"only a {end}" if self.shims & set(fifo.ends()) else "neither, it has no end on a shim"
            self.refuse(f"{what}: legal for this fifo: {where}")
        per_call = [(step.offset_by, "offset"), (step.length_by, "length")]
        for word, kind in per_call:
            if word is not None:
                self.word(word, kind, what)
                if len(step.descriptors) != 1:
                    self.refuse(f"{what}: {len(step.descriptors)} descriptors, its {kind} is set per call; legal: one")
        self.count(step, fifo, itemsize, what)

    def elements(self, step: Transfer, what: str) -> int:
        """What its descriptors walk is in the tensor; the bytes of an element."""
        argument = self.arguments.get(step.operand)
        if argument is None:
            self.refuse(f"{what}: {step.operand} is no tensor of the sequence")
        assert argument is not None
        if not step.descriptors:
            self.refuse(f"{what} has no descriptors")
        itemsize = as_format(argument.dtype_name).dtype.itemsize
        for one in step.descriptors:
            pairs = list(zip(one.sizes, one.strides, strict=True))
            low = one.offset + sum(min(0, (n - 1) * stride) for n, stride in pairs)
            high = one.offset + sum(max(0, (n - 1) * stride) for n, stride in pairs)
            if min(one.sizes) < 1 or low < 0 or high >= argument.elements:
                self.refuse(f"{what}: {one} reaches elements {low} to {high} of {argument.elements}")
        return int(itemsize)

    def word(self, word: Word, kind: str, what: str) -> None:
        if word not in self.words:
            self.refuse(f"{what}: {word.name} is none of its per-call words")
        if word.kind != kind:
            self.refuse(f"{what}: {word.name} is a word of kind {word.kind}; legal: {kind}")

    def unit(self, fifo: FifoData) -> tuple[int, str]:
        """Bytes that this fifo's ends take or give at once, and which they are."""
        parts = []
        for number in range(len(fifo.ends())):
            end = self.pools.end(fifo.name, number)
            pool = self.pools.pool_of(end)
            linked = pool is not None and len(pool.parts) == 1 and pool.type.elements > end.type.elements and not fifo.pad
            parts.append(pool.nbytes // pool.depth if linked and pool is not None else end.nbytes)
        unit = math.lcm(*parts)
        where = next((tile for tile, part in zip(fifo.ends(), parts, strict=True) if part == unit), "all its ends")
        return unit, f"the objects of {where}"

    def count(self, step: Transfer, fifo: FifoData, itemsize: int, what: str) -> None:
        """Objects are whole: over the transfers of a fifo, and at once where a call says how many units move."""
        unit, why = self.unit(fifo)
        if step.length_by is not None:
            step_bytes = step.unit * itemsize
            if step.unit < 1 or step_bytes % unit:
                self.refuse(f"{what} moves units of {step_bytes} bytes, as many as a call says; legal: multiples of {unit}, {why}")
            if self.bytes.get(fifo.name, 0) % unit:
                self.refuse(f"{what}: what went before it through the fifo is not whole objects of {unit} bytes, {why}")
            return
        self.bytes[fifo.name] = self.bytes.get(fifo.name, 0) + step.elements * itemsize

    # -- words and barriers --------------------------------------------------------------------------

    def barriers(self) -> None:
        """Words that a core reads are written before its barrier opens; a barrier it waits for is set."""
        buffers = {buffer.name: buffer for buffer in self.array.buffers}
        locks = {lock.name: lock for lock in self.array.locks}
        opened: dict[str, list[int]] = {}
        written: dict[tuple[str, int], int] = {}
        last: dict[str, int] = {}
        for at, step in enumerate(self.steps):
            if isinstance(step, SetBarrier):
                known = locks.get(step.lock)
                if known is None or known.kind != "barrier":
                    self.refuse(f"{step.lock} is set, which is no barrier of the array")
                opened.setdefault(step.lock, []).append(step.value)
                assert known is not None
                last[known.tile] = at
                continue
            words: tuple[tuple[str, int, Word | None], ...] = ()
            if isinstance(step, WriteWord):
                words = ((step.buffer, step.index, None),)
            elif isinstance(step, Sync):
                words = step.words
            for name, index, word in words:
                buffer = buffers.get(name)
                if buffer is None or not buffer.written or not 0 <= index < buffer.type.elements:
                    self.refuse(f"word {index} of {name} is written; that is no word of a buffer with use_write_rtp=True")
                if word is not None:
                    self.word(word, "core", f"word {index} of {name}")
                written[name, index] = at
        for core in self.array.cores:
            self.core(core.name, core.tile, opened, written, last)

    def core(
        self, name: str, tile: str, opened: dict[str, list[int]], written: dict[tuple[str, int], int], last: dict[str, int]
    ) -> None:
        core = self.array.core_at(tile)
        assert core is not None
        words = {buffer.name for buffer in self.array.buffers if buffer.tile == tile and buffer.written}
        for statement in walk(core.program):
            if isinstance(statement, WaitBarrier) and statement.value not in opened.get(statement.barrier, []):
                initial = next(lock.initial for lock in self.array.locks if lock.name == statement.barrier)
                if initial != statement.value:
                    self.refuse(f"core {name} waits until {statement.barrier} is {statement.value}, which nothing sets it to")
            if isinstance(statement, Load) and isinstance(statement.memory, Local) and statement.memory.buffer in words:
                index = statement.index
                if isinstance(index, Const) and (statement.memory.buffer, index.value) not in written:
                    self.refuse(f"core {name} reads word {index} of {statement.memory.buffer}, which nothing writes")
        late = [name for (name, _), at in written.items() if name in words and at > last.get(tile, -1)]
        if late:
            self.refuse(f"words of buffer {late[0]} are written after the barrier of core {name} is set; legal: before")
