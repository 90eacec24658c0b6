"""An encoder of instruction streams, written without the package's own: words as mlir-aie's passes and encoder make them of a design.

Used for what has no number per call that a host would have to write: a static stream, as `aiecc --get-npu-insts` gives it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

import numpy as np

from iron_core.array.descriptors import Descriptor
from iron_core.array.design import Design
from iron_core.array.pools import fifo_pools
from iron_core.array.sequence import Await, AwaitToken, Free, SetBarrier, Sync, Transfer, WriteWord
from iron_core.declare.formats import as_format

#: Bytes of tiles' address space; as the manuals have them.
DESCRIPTORS, QUEUES, CONTROLS, LOCKS = 0x1D000, {"drain": 0x1D204, "fill": 0x1D214}, {"drain": 0x1D200, "fill": 0x1D210}, 0x1F000


class Encoder:
    """The words of one design's stream. fold: offsets into arguments behind the fifth have 2 GiB added, as an xclbin's."""

    def __init__(self, design: Design, placement: Mapping[str, tuple[int, int]], fold: bool = True, chained: bool = True) -> None:
        self.design, self.placement, self.fold, self.chained = design, placement, fold, chained
        self.pools = fifo_pools(design.array, dict(placement))
        self.words: list[int] = []
        self.count = 0
        self.free: dict[int, list[int]] = {}
        self.tasks: dict[int, tuple[Transfer, int, int, list[int]]] = {}
        keys: list[object] = []
        self.index: dict[object, int] = {}
        for word in design.sequence.words:
            if word.key not in keys:
                keys.append(word.key)
            self.index[word] = keys.index(word.key)

    def bytes(self) -> bytes:
        for step in self.design.sequence.steps:
            self.step(step)
        generation = 4 if self.design.array.dev.startswith("npu2") else 3
        columns = max(column for column, _ in self.placement.values()) + 1
        head = [6 << 24 | generation << 16 | 1 << 8, 1 << 8 | columns, self.count, 16 + 4 * len(self.words)]
        return struct.pack(f"<{4 + len(self.words)}I", *head, *self.words)

    def put(self, *words: int) -> None:
        self.words += [word & 0xFFFFFFFF for word in words]
        self.count += 1

    def write(self, address: int, value: int) -> None:
        self.put(0, 0, address, 0, value, 24)

    def step(self, step: object) -> None:
        match step:
            case Transfer():
                self.transfer(step)
            case Await(task):
                moved, column, channel, ids = self.tasks[task]
                self.put(128, 16, (moved.way == "fill") | column << 16, 1 << 8 | 1 << 16 | channel << 24)
                self.free[column] = sorted(self.free[column] + ids)
            case Free(task):
                _, column, _, ids = self.tasks[task]
                self.free[column] = sorted(self.free[column] + ids)
            case AwaitToken(fifo):
                control = next(one for one in self.design.array.controls if one.fifo == fifo)
                self.put(128, 16, 1 | self.placement[control.target][0] << 16, 1 << 8 | 1 << 16 | control.channel << 24)
            case Sync(words):
                for buffer, index, word in words:
                    column, row = self.at(buffer)
                    self.write(column << 25 | row << 20 | 0x400 + 4 * index, 0)
                    self.put(12 | self.index[word] << 8, 1, column << 25 | row << 20 | 0x400 + 4 * index)
            case WriteWord(buffer, index, value):
                column, row = self.at(buffer)
                self.write(column << 25 | row << 20 | 0x400 + 4 * index, value)
            case SetBarrier(lock, value):
                tile = next(one.tile for one in self.design.array.locks if one.name == lock)
                column, row = self.placement[tile]
                self.write(column << 25 | row << 20 | LOCKS, value)

    def at(self, buffer: str) -> tuple[int, int]:
        return self.placement[next(one.tile for one in self.design.array.buffers if one.name == buffer)]

    def end(self, fifo: str) -> tuple[int, int, int]:
        """Column and channel of a task, and its packet's number or 0."""
        array = self.design.array
        for number, control in enumerate(array.controls, 1):
            if control.name == fifo:
                return self.placement[control.source][0], 0, number
        for number, tile in enumerate(array.fifo(fifo).ends()):
            if array.tile(tile).kind == "shim":
                return self.placement[tile][0], self.pools.end(fifo, number).channel, 0
        raise AssertionError(fifo)

    def transfer(self, step: Transfer) -> None:
        column, channel, packet = self.end(step.fifo)
        free = self.free.setdefault(column, list(range(16)))
        ids = [free.pop(0) for _ in step.descriptors]
        self.tasks[step.task] = step, column, channel, list(ids)
        alone = not self.chained or any(one.sizes[0] > 1 for one in step.descriptors)
        groups = [[k] for k in range(len(ids))] if alone else [list(range(len(ids)))]
        for group in groups:
            for k in group:
                self.descriptor(step, step.descriptors[k], column, ids[k], ids[k + 1] if k + 1 in group else None, packet)
            token = step.token and group is groups[-1]
            if token:
                self.put(3, 0, column << 25 | CONTROLS[step.way] + 8 * channel, 0, 15 << 8, 0x1F00, 28)
            repeats = step.descriptors[group[0]].sizes[0] - 1
            self.write(column << 25 | QUEUES[step.way] + 8 * channel, ids[group[0]] | repeats << 16 | token << 31)

    def descriptor(self, step: Transfer, one: Descriptor, column: int, number: int, following: int | None, packet: int) -> None:
        arguments = [argument.operand for argument in self.design.sequence.arguments]
        argument = arguments.index(step.operand)
        itemsize = np.dtype(as_format(self.design.sequence.arguments[argument].dtype_name).dtype).itemsize
        (n, c, b, a), (sn, sc, sb, sa) = one.sizes, one.strides
        linear = (b, c) == (1, 1) and sa == 1
        inner = (a * itemsize // 4, 1) if sa == 1 else (a, sa * itemsize // 4)
        assert a * itemsize % 4 == 0 or a == 1
        words = [c * b * inner[0], 0, 0, 0, 1 << 30, 2 << 24, 0, 1 << 25]
        words[2] = (1 << 30 | packet << 19) if packet else 0
        if not linear:
            words[3] = inner[0] << 20 | inner[1] - 1
            words[4] |= b << 20 | max(0, sb * itemsize // 4 - 1)
            words[5] |= max(0, sc * itemsize // 4 - 1)
        if n > 1 and sn:
            words[6] = n - 1 << 20 | sn * itemsize // 4 - 1
        if following is not None:
            words[7] |= 1 << 26 | following << 27
        base = column << 25 | DESCRIPTORS + 32 * number
        self.put(1, column, base, 48, *words)
        plus = one.offset * itemsize + (0x80000000 if self.fold and argument >= 5 else 0)
        self.put(129, 48, 0, 0, 0, 0, base + 4, 0, argument, 0, plus, 0)
        if step.offset_by is not None:
            self.put(12 | self.index[step.offset_by] << 8, itemsize, base + 4)
        if step.length_by is not None:
            self.write(base, 0)
            self.put(12 | self.index[step.length_by] << 8, step.unit * itemsize // 16, base)


def encoded(design: Design, placement: Mapping[str, tuple[int, int]], **options: bool) -> bytes:
    """The bytes of a design's stream."""
    return Encoder(design, placement, **options).bytes()
