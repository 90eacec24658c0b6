"""A reader of runtime sequences that mlir-aie lowered: what the descriptors they write in a shim walk, word by word."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Sequence

import attrs

from iron_core.devices import (
    DESCRIPTOR_REGISTERS,
    DESCRIPTOR_STEP,
    NEXT_CHANNEL,
    QUEUE_REGISTER,
    WRITING_QUEUE_REGISTER,
)

#: The queues of a shim's channels, by their registers.
QUEUES = {
    first + NEXT_CHANNEL * channel: (way, channel)
    for way, first in (("drain", WRITING_QUEUE_REGISTER), ("fill", QUEUE_REGISTER))
    for channel in (0, 1)
}
COLUMN, ROW = 25, 20
BINARY: dict[str, Callable[[int, int], int]] = {
    "addi": operator.add,
    "subi": operator.sub,
    "muli": operator.mul,
    "divui": operator.floordiv,
    "andi": operator.and_,
    "ori": operator.or_,
    "shli": operator.lshift,
}
COMPARED: dict[str, Callable[[int, int], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "slt": operator.lt,
    "sle": operator.le,
    "sgt": operator.gt,
    "sge": operator.ge,
}
#: Operations that move nothing: they name a buffer, make the scratchpad, choose the token's receiver, wait, or check.
PASSED = ("memref.get_global", "create_scratchpad", "npu.maskwrite32", "npu.sync", "npu.assert_bd_divisible")


@attrs.frozen
class Task:
    """One push of a queue: its way, the argument it addresses, the words it moves in order, and whether a token tells of it."""

    way: str
    argument: int
    words: tuple[int, ...]
    token: bool


def walk(words: list[int], start: int, execution: int) -> list[int]:
    """Word addresses of one execution of a shim's descriptor that starts at word `start`."""
    length = words[0]
    wraps = [words[i] >> 20 & 0x3FF for i in (3, 4)]
    steps = [(words[i] & 0xFFFFF) + 1 for i in (3, 4, 5)]
    count, step = (words[6] >> 20 & 0x3F) + 1, (words[6] & 0xFFFFF) + 1
    start += execution % count * step if words[6] & 0x3FFFFFF else 0
    found = []
    for k in range(length):
        rest, at = k, start
        for wrap, stride in zip(wraps, steps, strict=False):
            if not wrap:
                break
            at += rest % wrap * stride
            rest //= wrap
        else:
            found.append(at + rest * steps[2])
            continue
        found.append(at + rest * stride)
    return found


class Numbers:
    """What the SSA names of a sequence are in one call. `scalars`: its i32 arguments."""

    def __init__(self, header: str, scalars: Sequence[int]) -> None:
        names = re.findall(r"(%\w+): i32", header)
        assert len(names) == len(scalars), (names, scalars)
        self.of = dict(zip(names, scalars, strict=True))

    def __call__(self, name: str) -> int:
        return self.of[name]

    def take(self, line: str) -> bool:
        """Whether a line is arithmetic: its name is known from now on."""
        found = re.match(r"\s*(%[\w-]+) = arith\.(\w+) (.*?) : i\d+", line)
        if not found:
            return False
        name, op, given = found[1], found[2], found[3].split(", ")
        if op == "constant":
            value = int(given[0])
        elif op == "cmpi":
            value = COMPARED[given[0]](self(given[1]), self(given[2]))
        elif op == "select":
            value = self(given[1] if self(given[0]) else given[2])
        elif op in ("extsi", "trunci"):
            value = self(given[0])
        else:
            value = BINARY[op](self(given[0]), self(given[1]))
        assert -(1 << 31) <= value < 1 << 32, line
        self.of[name] = value
        return True


def tasks(text: str, state: Sequence[int] = (), scalars: Sequence[int] = ()) -> Iterator[Task]:
    """The tasks of a lowered sequence, in the order they are started, in one call.

    state: the scratchpad's words; scalars: the sequence's arguments that are numbers.
    """
    globals_ = {
        name: [int(n) & 0xFFFFFFFF for n in numbers.split(",")]
        for name, numbers in re.findall(r"@(\w+) : memref<8xi32> = dense<\[([^\]]*)\]>", text)
    }
    header, *body = text[text.index("aie.runtime_sequence") :].splitlines()
    numbers = Numbers(header, scalars)
    data: dict[str, str] = {}
    written: dict[int, list[int]] = {}
    patched: dict[int, tuple[int, int]] = {}
    for line in body:
        if numbers.take(line):
            continue
        if re.match(r"\s*}", line):
            return
        named = re.search(r"(%\w+) = memref\.get_global @(\w+)", line)
        block = re.search(r"blockwrite\((%\w+)\) \{address = (\d+)", line)
        patch = re.search(r"address_patch\((%[\w-]+) : i32\) \{addr = (\d+) : ui32, arg_idx = (\d+)", line)
        write = re.search(r"npu\.write32\((%[\w-]+), (%[\w-]+)\)(?: \{column = (\d+) : i32, row = (\d+) : i32\})?", line)
        update = re.search(r"update_from_scratchpad<mul> \{(.*)\}", line)
        if named:
            data[named[1]] = named[2]
        elif block:
            written[int(block[2])] = list(globals_[data[block[1]]])
        elif update:
            given = {k: int(n) for k, n in re.findall(r"(\w+) = (\d+)", update[1])}
            place = given["address"] | given.get("column", 0) << COLUMN | given.get("row", 0) << ROW
            delta = state[given["state_table_idx"]] * given["func_arg"]
            if "buffer = " in update[1] or place >> ROW & 0x1F:
                continue
            if place in written:
                written[place][0] = written[place][0] + delta & ~3
            else:
                byte, argument = patched[place - 4]
                patched[place - 4] = byte + delta & ~3, argument
        elif patch:
            patched[int(patch[2]) - 4] = numbers(patch[1]), int(patch[3])
        elif write:
            address, value = numbers(write[1]) | int(write[3] or 0) << COLUMN | int(write[4] or 0) << ROW, numbers(write[2]) & 0xFFFFFFFF
            if address >> ROW & 0x1F:
                continue
            queue = QUEUES.get(address & 0xFFFFF)
            if queue:
                yield _task(queue[0], address & ~0xFFFFF, value, written, patched)
            else:
                written[address & ~(DESCRIPTOR_STEP - 1)][address % DESCRIPTOR_STEP // 4] = value
        else:
            assert not line.strip() or any(op in line for op in PASSED), line


def _task(way: str, tile: int, value: int, written: dict[int, list[int]], patched: dict[int, tuple[int, int]]) -> Task:
    number, repeats = value & 0xF, (value >> 16 & 0xFF) + 1
    moved: list[int] = []
    argument = 0
    for execution in range(repeats):
        at: int | None = number
        while at is not None:
            place = tile | DESCRIPTOR_REGISTERS + DESCRIPTOR_STEP * at
            words = written[place]
            byte, argument = patched[place]
            assert byte % 4 == 0
            moved += walk(words, byte // 4, execution)
            at = words[7] >> 27 & 0xF if words[7] >> 26 & 1 else None
    return Task(way, argument, tuple(moved), bool(value >> 31))
