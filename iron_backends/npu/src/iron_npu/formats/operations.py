"""The operations of an instruction stream, version 0.1, one class each: their words and a line of text.

Layouts after mlir-aie's encoder, aie-rt's structures and aiebu's assembler. Bits that have no field are 0. Of operations 2, 14 and 15
only the length is established; what is inside is kept as words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import attrs

from iron_core.devices import WORD
from iron_npu.errors import ImageError
from iron_npu.formats.addresses import TILE, split, spoken
from iron_npu.formats.fields import ONES, Field, packed, unused, wrong

#: Bits of a stream's words that hold a small number.
_BYTE = 8
FUNCTIONS = ("mul", "incr", "decr")
DIRECTIONS = ("S2MM", "MM2S")


class Operation:
    """One operation: `words` words, or where it has a `tail`, at least as many. size_word: the word that has its bytes."""

    opcode: ClassVar[int]
    name: ClassVar[str]
    words: ClassVar[int]
    size_word: ClassVar[int | None] = None
    fields: ClassVar[tuple[Field, ...]] = ()
    #: The attribute that has the words behind the first `words` ones.
    tail: ClassVar[str] = ""
    _unused: ClassVar[tuple[tuple[int, int], ...]]

    def __init_subclass__(cls) -> None:
        if "words" not in vars(cls):
            return
        known = [Field("opcode", 0, 0, _BYTE), *cls.fields]
        known += [] if cls.size_word is None else [Field("size", cls.size_word)]
        cls._unused = tuple((k, mask) for k, mask in enumerate(unused(known, cls.words)) if mask)

    @classmethod
    def read(cls, words: Sequence[int], at: int) -> tuple[Self, int]:
        """The operation whose first word is number `at`, and the number of the word behind it."""
        left = len(words) - at
        if left < cls.words:
            raise wrong(WORD * at, f"{cls.name} has {cls.words} words, and {left} are left")
        length = cls.words
        if cls.size_word is not None:
            nbytes, least = words[at + cls.size_word], WORD * cls.words
            if cls.tail and (nbytes % WORD or not least <= nbytes <= WORD * left):
                legal = f"a multiple of {WORD} from {least} to the {WORD * left} that are left"
                raise wrong(WORD * (at + cls.size_word), f"{cls.name} of {nbytes} bytes; legal: {legal}")
            if not cls.tail and nbytes != least:
                raise wrong(WORD * (at + cls.size_word), f"{cls.name} of {nbytes} bytes; legal: {least}")
            length = nbytes // WORD
        given = words[at : at + length]
        for k, mask in cls._unused:
            if given[k] & mask:
                raise wrong(WORD * (at + k), f"{cls.name} has {given[k] & mask:#010x} in bits that mean nothing; legal: 0")
        values: dict[str, Any] = {field.name: field.get(given) for field in cls.fields}
        if cls.tail:
            values[cls.tail] = tuple(given[cls.words :])
        try:
            made = cls(**values)
            made.check()
        except ImageError as error:
            raise wrong(WORD * at, f"{cls.name}: {str(error).rstrip('.')}") from None
        return made, at + length

    def write(self) -> list[int]:
        """Its words. ImageError for a value that its bits do not hold."""
        self.check()
        words = packed(self.fields, {field.name: getattr(self, field.name) for field in self.fields}, self.words)
        words[0] |= self.opcode
        more: tuple[int, ...] = getattr(self, self.tail) if self.tail else ()
        if any(not 0 <= n <= ONES for n in more):
            raise ImageError(f"{self.name}: {self.tail} with a number outside 0 to {ONES}.")
        if self.size_word is not None:
            words[self.size_word] = WORD * (self.words + len(more))
        return [*words, *more]

    def check(self) -> None:
        """ImageError for values that its bits hold and that mean nothing."""
        address = getattr(self, "address", None)
        if address is not None and address % WORD:
            raise ImageError(f"register {address:#x}; legal: a multiple of {WORD}.")

    def spoken(self) -> str:
        """What it does, without its name."""
        return ""

    def line(self) -> str:
        return f"{self.name} {self.spoken()}".rstrip()


@attrs.frozen
class Write(Operation):
    """A register's new word."""

    opcode, name, words, size_word = 0, "write", 6, 5
    fields = (Field("address", 2), Field("value", 4))
    address: int
    value: int

    def spoken(self) -> str:
        return f"{spoken(self.address)} = {self.value:#x}"


@attrs.frozen
class _Block(Operation):
    """Words of registers one after another. The tile may stand beside the address too."""

    fields = (Field("column", 1, 0, _BYTE), Field("row", 1, _BYTE, _BYTE), Field("address", 2))
    address: int
    data: tuple[int, ...]
    column: int = 0
    row: int = 0

    def check(self) -> None:
        super().check()
        column, row, offset = split(self.address)
        if (self.column, self.row) not in ((0, 0), (column, row)):
            raise ImageError(f"tile {self.column},{self.row} beside an address in {column},{row}; legal: the same, or 0,0.")
        if offset + WORD * len(self.data) > TILE:
            raise ImageError(f"{len(self.data)} words from byte {offset:#x} of a tile; legal: to its end at {TILE:#x}.")

    def spoken(self) -> str:
        return f"{spoken(self.address)} = {' '.join(f'{n:#x}' for n in self.data)}"


@attrs.frozen
class BlockWrite(_Block):
    """New words of registers one after another."""

    opcode, name, words, size_word, tail = 1, "blockwrite", 4, 3, "data"


@attrs.frozen
class BlockSet(_Block):
    """Registers one after another set to one word; laid out as a block write is."""

    opcode, name, words, size_word, tail = 2, "blockset", 4, 3, "data"


@attrs.frozen
class _Kept(Operation):
    """An operation of which only the length is known."""

    data: tuple[int, ...] = ()

    def spoken(self) -> str:
        return " ".join(f"{n:#x}" for n in self.data)


@attrs.frozen
class MaskWrite(Operation):
    """The bits of a register that the mask has."""

    opcode, name, words, size_word = 3, "maskwrite", 7, 6
    fields = (Field("address", 2), Field("value", 4), Field("mask", 5))
    address: int
    value: int
    mask: int

    def spoken(self) -> str:
        return f"{spoken(self.address)} = {self.value:#x} where {self.mask:#x}"


@attrs.frozen
class MaskPoll(Operation):
    """Wait until the bits of a register that the mask has are the value's."""

    opcode, name, words, size_word = 4, "maskpoll", 7, 6
    fields = MaskWrite.fields
    address: int
    value: int
    mask: int

    def spoken(self) -> str:
        return f"{spoken(self.address)} is {self.value:#x} where {self.mask:#x}"


@attrs.frozen
class MaskPollBusy(MaskPoll):
    """The same without giving way."""

    opcode, name, words, size_word = 7, "maskpoll-busy", 7, 6


@attrs.frozen
class Noop(Operation):
    """Nothing."""

    opcode, name, words = 5, "noop", 1


@attrs.frozen
class Preempt(Operation):
    """A place where another context may come in. level: 0 to 3, what of the array is kept."""

    opcode, name, words = 6, "preempt", 1
    fields = (Field("level", 0, 8, _BYTE),)
    level: int

    def spoken(self) -> str:
        return f"level {self.level}"


@attrs.frozen
class LoadPdi(Operation):
    """Configure the array. place: where its file lies, patched when it is loaded."""

    opcode, name, words = 8, "loadpdi", 4
    fields = (Field("number", 0, 16, 16), Field("nbytes", 1), Field("place", 2, 0, 64))
    number: int
    nbytes: int = 0
    place: int = 0

    def spoken(self) -> str:
        return f"{self.number} of {self.nbytes} bytes at {self.place:#x}"


@attrs.frozen
class LoadPm(Operation):
    """Load program memories: the `count` operations behind it."""

    opcode, name, words = 9, "load-pm", 2
    fields = (Field("count", 0, 8, 24), Field("number", 1))
    count: int
    number: int

    def spoken(self) -> str:
        return f"{self.number} by {self.count} operations"


@attrs.frozen
class CreateScratchpad(Operation):
    """Words that a run's host patches. place: where they lie, patched when it is loaded."""

    opcode, name, words = 10, "create-scratchpad", 4
    fields = (Field("usage", 0, 8, _BYTE), Field("nbytes", 1), Field("place", 2, 0, 64))
    nbytes: int
    usage: int = 0
    place: int = 0

    def spoken(self) -> str:
        return f"of {self.nbytes} bytes, usage {self.usage}"


@attrs.frozen
class UpdateState(Operation):
    """Change a word of the scratchpad."""

    opcode, name, words = 11, "update-state-table", 2
    fields = (Field("index", 0, 8, _BYTE), Field("function", 0, 16, _BYTE), Field("argument", 1))
    index: int
    function: int
    argument: int

    def check(self) -> None:
        if self.function >= len(FUNCTIONS):
            raise ImageError(f"function {self.function}; legal: 0 to {len(FUNCTIONS) - 1}, {', '.join(FUNCTIONS)}.")

    def spoken(self) -> str:
        return f"word {self.index} {FUNCTIONS[self.function]} {self.argument}"


@attrs.frozen
class UpdateRegister(Operation):
    """Add a word of the scratchpad, after a function of it, to a pair of registers."""

    opcode, name, words = 12, "update-reg", 3
    fields = (*UpdateState.fields, Field("address", 2))
    index: int
    function: int
    argument: int
    address: int

    def check(self) -> None:
        super().check()
        UpdateState(self.index, self.function, self.argument).check()

    def spoken(self) -> str:
        return f"{spoken(self.address)} += word {self.index} {FUNCTIONS[self.function]} {self.argument}"


@attrs.frozen
class UpdateScratch(Operation):
    """Write the scratchpad's words back."""

    opcode, name, words = 13, "update-scratch", 1


@attrs.frozen
class ConfigureDescriptor(_Kept):
    """A shim's descriptor with an address of the host."""

    opcode, name, words, size_word, tail = 14, "config-shimdma-bd", 2, 1, "data"


@attrs.frozen
class ConfigureSharedDescriptor(_Kept):
    """A shim's descriptor with an address of a shared buffer."""

    opcode, name, words, size_word, tail = 15, "config-shimdma-dmabuf-bd", 2, 1, "data"


@attrs.frozen
class Wait(Operation):
    """Wait for a token of a channel in each of `columns` by `rows` tiles, from this one on."""

    opcode, name, words, size_word = 128, "wait", 4, 1
    fields = (
        Field("direction", 2, 0, _BYTE), Field("row", 2, 8, _BYTE), Field("column", 2, 16, _BYTE),
        Field("rows", 3, 8, _BYTE), Field("columns", 3, 16, _BYTE), Field("channel", 3, 24, _BYTE),
    )  # fmt: skip
    column: int
    row: int
    direction: int
    channel: int
    columns: int = 1
    rows: int = 1

    def check(self) -> None:
        if self.direction >= len(DIRECTIONS):
            raise ImageError(f"direction {self.direction}; legal: 0 to 1, {', '.join(DIRECTIONS)}.")

    def spoken(self) -> str:
        more = "" if (self.columns, self.rows) == (1, 1) else f" and {self.columns} x {self.rows} tiles from there on"
        return f"{self.column},{self.row} {DIRECTIONS[self.direction]} {self.channel}{more}"


@attrs.frozen
class Patch(Operation):
    """Write the address of an argument, and `offset` bytes, into a descriptor. address: of its second word, the low half."""

    opcode, name, words, size_word = 129, "patch", 12, 1
    fields = (Field("address", 6), Field("argument", 8), Field("offset", 10, 0, 64))
    address: int
    argument: int
    offset: int = 0

    def spoken(self) -> str:
        return f"{spoken(self.address)} = argument {self.argument} + {self.offset:#x}"


@attrs.frozen
class ReadRegisters(_Kept):
    """Note what registers hold. data: a count, a word of nothing, and addresses of two words each."""

    opcode, name, words, size_word, tail = 130, "read-regs", 2, 1, "data"


@attrs.frozen
class Timer(Operation):
    """Note the time under a number."""

    opcode, name, words, size_word = 131, "timer", 3, 1
    fields = (Field("number", 2),)
    number: int

    def spoken(self) -> str:
        return str(self.number)


@attrs.frozen
class MergeSync(Operation):
    """Wait for `tokens` tokens of `columns` columns."""

    opcode, name, words, size_word = 132, "merge-sync", 4, 1
    fields = (Field("columns", 2, 0, _BYTE), Field("tokens", 2, 8, _BYTE))
    tokens: int
    columns: int

    def spoken(self) -> str:
        return f"{self.tokens} of {self.columns} columns"


OPERATIONS: dict[int, type[Operation]] = {
    one.opcode: one
    for one in (
        Write, BlockWrite, BlockSet, MaskWrite, MaskPoll, Noop, Preempt, MaskPollBusy, LoadPdi, LoadPm, CreateScratchpad, UpdateState,
        UpdateRegister, UpdateScratch, ConfigureDescriptor, ConfigureSharedDescriptor, Wait, Patch, ReadRegisters, Timer, MergeSync,
    )
}  # fmt: skip
