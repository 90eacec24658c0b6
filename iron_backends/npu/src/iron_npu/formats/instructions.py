"""Instruction streams ("TXN", version 0.1): what an NPU's firmware executes for one run, `insts.bin` of mlir-aie.

    Stream.read(Path("insts.bin").read_bytes()).lines()
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from iron_core.devices import COLUMN_SHIFT, MEMORY_ROW, ROW_SHIFT, WORD
from iron_npu.errors import ImageError
from iron_npu.formats.addresses import split
from iron_npu.formats.fields import Field, bytes_of, packed, unused, words_of, wrong
from iron_npu.formats.operations import OPERATIONS, Operation

#: Bytes of the largest stream that is read.
LARGEST = 1 << 28
#: The layout of operations that is read, and the families of devices by their number.
VERSION = (0, 1)
GENERATIONS = {3: "npu1", 4: "npu2"}
_WORDS = 4
_COUNT, _BYTES = 2, 3
_FIELDS = (
    Field("major", 0, 0, 8), Field("minor", 0, 8, 8), Field("generation", 0, 16, 8), Field("rows", 0, 24, 8),
    Field("columns", 1, 0, 8), Field("memory_rows", 1, 8, 8), Field("count", _COUNT), Field("nbytes", _BYTES),
)  # fmt: skip
_UNUSED = unused(_FIELDS, _WORDS)


@attrs.frozen
class Header:
    """generation: 3 is npu1, 4 npu2. columns, rows: of the array, shims and `memory_rows` rows of memory tiles among them."""

    generation: int
    columns: int
    rows: int = 6
    memory_rows: int = 1

    @property
    def family(self) -> str:
        return GENERATIONS[self.generation]

    def check(self) -> None:
        """ImageError for an array that there cannot be."""
        if self.generation not in GENERATIONS:
            legal = ", ".join(f"{number} ({name})" for number, name in GENERATIONS.items())
            raise ImageError(f"generation {self.generation}; legal: {legal}.")
        least = MEMORY_ROW + self.memory_rows + 1
        if not least <= self.rows <= 1 << COLUMN_SHIFT - ROW_SHIFT:
            raise ImageError(f"{self.rows} rows, {self.memory_rows} of memory tiles; legal: {least} to {1 << COLUMN_SHIFT - ROW_SHIFT}.")
        if not 1 <= self.columns <= 1 << 32 - COLUMN_SHIFT:
            raise ImageError(f"{self.columns} columns; legal: 1 to {1 << 32 - COLUMN_SHIFT}.")


@attrs.frozen
class Stream:
    """A header and its operations, in order."""

    header: Header
    operations: tuple[Operation, ...]

    @classmethod
    def read(cls, data: bytes | memoryview) -> Stream:
        """The stream of a file's bytes. ImageError names the byte where it breaks a rule."""
        if len(data) > LARGEST:
            raise ImageError(f"{len(data)} bytes; legal: a stream of at most {LARGEST}.")
        if len(data) % WORD or len(data) < WORD * _WORDS:
            raise wrong(0, f"{len(data)} bytes; legal: whole {WORD}-byte words, at least the header's {_WORDS}")
        words = words_of(data)
        given = {field.name: field.get(words) for field in _FIELDS}
        if (given["major"], given["minor"]) != VERSION:
            raise wrong(0, f"version {given['major']}.{given['minor']}; legal: {VERSION[0]}.{VERSION[1]}")
        for k, mask in enumerate(_UNUSED):
            if words[k] & mask:
                raise wrong(WORD * k, f"the header has {words[k] & mask:#010x} in bits that mean nothing; legal: 0")
        if given["nbytes"] != len(data):
            raise wrong(WORD * _BYTES, f"the header says {given['nbytes']} bytes; legal: the file's {len(data)}")
        header = Header(given["generation"], given["columns"], given["rows"], given["memory_rows"])
        try:
            header.check()
        except ImageError as error:
            raise wrong(0, str(error).rstrip(".")) from None
        return cls(header, tuple(_operations(words, header, given["count"])))

    def write(self) -> bytes:
        """The file's bytes. ImageError for values that it does not hold."""
        self.header.check()
        words: list[int] = []
        for operation in self.operations:
            words += operation.write()
        header = {"major": VERSION[0], "minor": VERSION[1], **attrs.asdict(self.header)}
        header |= {"count": len(self.operations), "nbytes": WORD * (_WORDS + len(words))}
        return bytes_of([*packed(_FIELDS, header, _WORDS), *words])

    def lines(self) -> Iterator[str]:
        """A line for the header, then one for each operation: its byte, its name, the tile and the register."""
        h = self.header
        yield f"{h.family}, {h.columns} columns, {h.rows} rows ({h.memory_rows} of memory tiles), {len(self.operations)} operations"
        at = WORD * _WORDS
        for operation in self.operations:
            yield f"{at:#07x} {operation.line()}"
            at += WORD * len(operation.write())


def is_stream(head: bytes) -> bool:
    """Does a file that begins so look like an instruction stream of any version that there is?"""
    return len(head) >= WORD * _WORDS and (head[0], head[1]) in ((0, 1), (1, 0)) and head[2] in GENERATIONS


def _operations(words: tuple[int, ...], header: Header, count: int) -> Iterator[Operation]:
    at, number = _WORDS, 0
    while at < len(words):
        if number == count:
            raise wrong(WORD * at, f"words behind operation {count}, the last one of the header's count; legal: none")
        opcode = words[at] & 0xFF
        kind = OPERATIONS.get(opcode)
        if kind is None:
            legal = ", ".join(map(str, OPERATIONS))
            raise wrong(WORD * at, f"opcode {opcode}; legal: {legal}")
        operation, after = kind.read(words, at)
        where = getattr(operation, "address", None)
        if where is not None:
            column, row, _ = split(where)
            if column >= header.columns or row >= header.rows:
                legal = f"0,0 to {header.columns - 1},{header.rows - 1}"
                raise wrong(WORD * at, f"{operation.name} to tile {column},{row}; legal: {legal}, the header's array")
        yield operation
        at, number = after, number + 1
    if number != count:
        raise wrong(WORD * _COUNT, f"the header counts {count} operations; legal: {number}, which there are")
