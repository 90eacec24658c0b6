"""Tables of per-call parameters (`params.txt` of mlir-aie), and the scratchpad that a host fills by one.

A line has the number of parameters, then each has one: its name, the number of its word, its type and its kind.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import attrs

from iron_core.devices import WORD, WORD_SHIFT, device
from iron_npu.errors import ImageError
from iron_npu.formats.fields import bytes_of

#: Words of a control scratchpad, and bytes of the largest table that is read.
WORDS = device("npu2").scratchpad_words
LARGEST = 1 << 16
#: Bits of the types that parameters may have.
TYPES = {"i8": 8, "i16": 16, "i32": 32, "bf16": 16}
#: Read by cores, or added to an address of memory.
CORE, ADDRESS = "core", "addr"
_NAME = re.compile(r"[A-Za-z_][\w$.-]*", re.ASCII)


def _wrong(line: int, rule: str) -> ImageError:
    return ImageError(f"line {line}: {rule}.")


@attrs.frozen
class TableEntry:
    """One parameter. index: its word in the scratchpad. kind: CORE, whose word is kept shifted left, or ADDRESS, kept as it is."""

    name: str
    index: int
    type: str
    kind: str

    @property
    def shift(self) -> int:
        return WORD_SHIFT if self.kind == CORE else 0

    @property
    def most(self) -> int:
        """The largest number it may be."""
        return (1 << min(TYPES[self.type], 8 * WORD - self.shift)) - 1

    def check(self) -> str:
        """The rule it breaks; "" for none."""
        if not _NAME.fullmatch(self.name):
            return f"name {self.name!r}; legal: letters, digits, _, $, . and -, no digit first"
        if not 0 <= self.index < WORDS:
            return f"{self.name} is word {self.index}; legal: 0 to {WORDS - 1}"
        if self.type not in TYPES:
            return f"{self.name} is of type {self.type!r}; legal: {', '.join(TYPES)}"
        if self.kind not in (CORE, ADDRESS):
            return f"{self.name} is of kind {self.kind!r}; legal: {CORE}, {ADDRESS}"
        if self.kind == ADDRESS and self.type != "i32":
            return f"{self.name} is an address of type {self.type}; legal: i32"
        return ""


@attrs.frozen
class ParameterTable:
    """The parameters of a full ELF, in the order of its table."""

    entries: tuple[TableEntry, ...]

    @classmethod
    def read(cls, data: bytes | memoryview) -> ParameterTable:
        """The table of a file's bytes. ImageError names the line that breaks a rule."""
        if len(data) > LARGEST:
            raise ImageError(f"{len(data)} bytes; legal: a table of at most {LARGEST}.")
        try:
            text = bytes(data).decode("ascii")
        except UnicodeDecodeError as error:
            raise ImageError(f"byte {error.start:#x}: {data[error.start]:#04x}; legal: ASCII.") from None
        first, *lines = text.removesuffix("\n").split("\n")
        if not re.fullmatch("[0-9]{1,9}", first):
            raise _wrong(1, f"{first!r}; legal: the number of parameters")
        if int(first) != len(lines):
            raise _wrong(1, f"{int(first)} parameters; legal: {len(lines)}, the lines behind it")
        entries = []
        for number, line in enumerate(lines, 2):
            words = line.split(" ")
            if len(words) != 4 or not re.fullmatch("[0-9]{1,9}", words[1]):
                raise _wrong(number, f"{line!r}; legal: name, number, type and kind, a space between")
            entries.append(TableEntry(words[0], int(words[1]), words[2], words[3]))
        table = cls(tuple(entries))
        table._check(2)
        return table

    def write(self) -> bytes:
        """The file's bytes. ImageError for entries that no table holds."""
        self._check(2)
        lines = [str(len(self.entries)), *(f"{e.name} {e.index} {e.type} {e.kind}" for e in self.entries)]
        return "".join(f"{line}\n" for line in lines).encode()

    def scratchpad(self, values: Mapping[str, int]) -> bytes:
        """The bytes of the scratchpad in a call that gives every parameter a number; words without a parameter are 0.

        ImageError for a parameter that is not given or does not exist, and for a number that it does not hold.
        """
        names = {entry.name for entry in self.entries}
        for odd in sorted(names ^ set(values)):
            given = "not given" if odd in names else "no parameter"
            raise ImageError(f"{odd}: {given}; legal: a number for each of {', '.join(sorted(names)) or 'none'}.")
        words = [0] * WORDS
        for entry in self.entries:
            value = values[entry.name]
            if type(value) is not int or not 0 <= value <= entry.most:
                raise ImageError(f"{entry.name}={value!r}; legal: 0 to {entry.most}, {entry.type} of kind {entry.kind}.")
            words[entry.index] = value << entry.shift
        return bytes_of(words)

    def _check(self, first: int) -> None:
        names: set[str] = set()
        indices: dict[int, str] = {}
        for number, entry in enumerate(self.entries, first):
            rule = entry.check()
            if not rule and entry.name in names:
                rule = f"{entry.name} once more; legal: a name once"
            if not rule and entry.index in indices:
                rule = f"{entry.name} is word {entry.index}, as {indices[entry.index]} is; legal: a word each"
            if rule:
                raise _wrong(number, rule)
            names.add(entry.name)
            indices[entry.index] = entry.name


def is_table(head: bytes) -> bool:
    """Does a file that begins so look like a table of parameters?"""
    first, _, rest = head.partition(b"\n")
    return bool(re.fullmatch(rb"[0-9]{1,9}", first)) and (not rest or head.isascii())
