"""What an instruction stream does: its writes replayed onto a model of the registers, which gives the transfers that it starts.

    for step in interpret(Stream.read(data)):
        ...                       # Transfer or Wait, in order
"""

from __future__ import annotations

import attrs

from iron_core.devices import DESCRIPTOR_STEP, HOST_MEMORY, TILE_REGISTERS, TRANSLATED_ARGUMENTS, WORD
from iron_npu.errors import ImageError
from iron_npu.formats.addresses import REPEAT_BITS, REPEAT_LOW, TOKEN_BIT, address, channel_at, descriptor_at, kind_of, split
from iron_npu.formats.descriptors import ADDRESS_WORD, LENGTH_WORD, WORDS, Descriptor, Update
from iron_npu.formats.fields import ONES
from iron_npu.formats.instructions import Stream
from iron_npu.formats.operations import (
    BlockSet,
    BlockWrite,
    ConfigureDescriptor,
    ConfigureSharedDescriptor,
    LoadPdi,
    MaskWrite,
    Operation,
    Patch,
    UpdateRegister,
    Wait,
    Write,
)


@attrs.frozen
class Transfer:
    """One push of a channel's queue.

    direction: "MM2S" reads memory, "S2MM" writes it. descriptors: the chain from descriptor `first` on; none, where the stream
    did not write it. loops: the chain has no end. executions: of the chain.
    """

    column: int
    row: int
    direction: str
    channel: int
    first: int
    descriptors: tuple[Descriptor, ...]
    executions: int = 1
    token: bool = False
    loops: bool = False

    def spoken(self) -> str:
        """In a line."""
        text = f"{self.column},{self.row} {self.direction} {self.channel} descriptor {self.first}"
        if not self.descriptors:
            text += ", which was not written here"
        for one in self.descriptors:
            whole = " x ".join(f"{n}:{stride}" for n, stride in one.walk(self.executions)) or "1"
            where = f"{one.address:#x}" if one.argument is None else f"argument {one.argument} + {one.offset:#x}"
            text += f", {whole} words at {where}"
            text += f" in packets {one.packet[0]}" if one.packet else ""
            text += "".join(
                f", {what} by word {by.index}" for what, by in (("length", one.length_by), ("offset", one.offset_by)) if by is not None
            )
        return text + (", over and over" if self.loops else "") + (", with a token" if self.token else "")


class RegisterModel:
    """The registers that were written, by their addresses, and what is patched into them. memory_rows: rows of memory tiles."""

    def __init__(self, memory_rows: int = 1, folded: bool = False) -> None:
        self.memory_rows, self.folded = memory_rows, folded
        self.words: dict[int, int] = {}
        self._patches: dict[int, tuple[int, int]] = {}
        self._updates: dict[int, Update] = {}

    def write(self, where: int, value: int) -> Transfer | None:
        """A register's new word; the transfer that this starts, where it is a queue."""
        self.words[where] = value
        self._patches.pop(where, None)
        self._updates.pop(where, None)
        column, row, offset = split(where)
        kind = kind_of(row, self.memory_rows)
        channel = channel_at(kind, offset)
        if channel is None or not channel[2]:
            return None
        direction, number, _ = channel
        first = value & (1 << TILE_REGISTERS[kind].number_bits) - 1
        chain, loops = self.chain(column, row, first)
        executions = (value >> REPEAT_LOW & (1 << REPEAT_BITS) - 1) + 1
        return Transfer(column, row, direction, number, first, chain, executions, bool(value >> TOKEN_BIT), loops)

    def patch(self, where: int, argument: int, offset: int) -> None:
        """The address in a descriptor's second word and the word behind it is `offset` bytes into an argument."""
        if self.folded and argument >= TRANSLATED_ARGUMENTS:
            offset = offset - HOST_MEMORY & ONES
        self._patches[where] = argument, offset

    def update(self, where: int, update: Update) -> None:
        self._updates[where] = update

    def descriptor(self, column: int, row: int, number: int) -> Descriptor | None:
        """What a descriptor's registers say; None where none of them was written."""
        kind = kind_of(row, self.memory_rows)
        first = address(column, row, TILE_REGISTERS[kind].descriptors + DESCRIPTOR_STEP * number)
        places = range(first, first + WORD * WORDS, WORD)
        if not any(place in self.words for place in places) or descriptor_at(kind, split(first)[2]) is None:
            return None
        found = Descriptor.of(kind, number, [self.words.get(place, 0) for place in places])
        if kind != "shim":
            return found
        at = first + WORD * ADDRESS_WORD
        argument, offset = self._patches.get(at, (None, 0))
        return attrs.evolve(
            found,
            argument=argument,
            offset=offset,
            length_by=self._updates.get(first + WORD * LENGTH_WORD),
            offset_by=self._updates.get(at),
        )

    def chain(self, column: int, row: int, number: int | None) -> tuple[tuple[Descriptor, ...], bool]:
        """A descriptor and those behind it, and whether that goes round."""
        found: dict[int, Descriptor] = {}
        while number is not None and number not in found:
            one = self.descriptor(column, row, number)
            if one is None:
                break
            found[number], number = one, one.next
        return tuple(found.values()), number is not None and number in found

    def clear(self) -> None:
        """The array is configured anew."""
        for known in (self.words, self._patches, self._updates):
            known.clear()


def same(here: Transfer | Wait, there: Transfer | Wait) -> bool:
    """Are two steps the same? In how many dimensions a walk is written, and where its descriptor is, makes no difference.

    A length that each call adds to begins at 0 in a stream; then `there` says how far the walks are compared.
    """
    if isinstance(here, Wait) or isinstance(there, Wait):
        return here == there
    ends = [(one.column, one.row, one.direction, one.channel, one.token, one.loops) for one in (here, there)]
    if ends[0] != ends[1] or len(here.descriptors) != len(there.descriptors):
        return False
    return all(
        _walks(one, other, here.executions, there.executions) for one, other in zip(here.descriptors, there.descriptors, strict=True)
    )


def _walks(here: Descriptor, there: Descriptor, executions: int, expected: int) -> bool:
    if here.length_by is not None and there.length_by is not None and here.length == 0:
        here = attrs.evolve(here, length=there.length)
    parts = [
        (d.argument, d.offset, d.walk(count), d.length * count, d.packet, d.length_by, d.offset_by)
        for d, count in ((here, executions), (there, expected))
    ]
    return parts[0] == parts[1]


def interpret(stream: Stream, *, folded: bool = False, registers: RegisterModel | None = None) -> tuple[Transfer | Wait, ...]:
    """The transfers that a stream starts and the tokens that it waits for, in order.

    folded: the stream is an xclbin's, where the offsets into arguments behind the first few have the host's memory added. registers:
    what they are before; they are changed. ImageError for an operation whose effect is not known.
    """
    state = RegisterModel(stream.header.memory_rows, folded) if registers is None else registers
    found: list[Transfer | Wait] = []
    for number, operation in enumerate(stream.operations):
        if isinstance(operation, (BlockSet, ConfigureDescriptor, ConfigureSharedDescriptor)):
            raise ImageError(f"operation {number}, {operation.name}: what it writes is not known; legal: streams without it.")
        found += _step(state, operation)
    return tuple(found)


def _step(state: RegisterModel, operation: Operation) -> list[Transfer | Wait]:
    started: list[Transfer | None] = []
    match operation:
        case Write(where, value):
            started = [state.write(where, value)]
        case BlockWrite(where, data):
            started = [state.write(where + WORD * k, value) for k, value in enumerate(data)]
        case MaskWrite(where, value, mask):
            started = [state.write(where, state.words.get(where, 0) & ~mask | value & mask)]
        case Patch(where, argument, offset):
            state.patch(where, argument, offset)
        case UpdateRegister(index, function, number, where):
            state.update(where, Update(index, function, number))
        case LoadPdi():
            state.clear()
        case Wait():
            return [operation]
    return [one for one in started if one is not None]
