"""How large cores' programs are, read from the ELFs that aiecc links for them."""

from __future__ import annotations

import json
import struct
from pathlib import Path

from iron_core.errors import CallError, printable

#: The sizes as an entry of the cache keeps them: the core, as aiecc names it, to bytes.
FILE = "programs.json"

_MAGIC = b"\x7fELF"
_LOAD, _EXECUTABLE = 1, 1
#: By the class in the fifth byte: header behind the magic, and the fields of a segment in the order type, flags, address, size in memory.
_HEADERS = {1: "<12xHHIIIIIHHH", 2: "<12xHHIQQQIHHH"}
_SEGMENTS = {1: ("<IIIIIIII", (0, 6, 2, 5)), 2: ("<IIQQQQQQ", (0, 1, 3, 6))}


def program_bytes(elf: bytes) -> int:
    """Bytes of program memory that an ELF takes: from the start of its first executable segment to the end of the last.

    CallError for what is no little-endian ELF, or a part of one.
    """
    if elf[:4] != _MAGIC or len(elf) < 6 or elf[4] not in _HEADERS or elf[5] != 1:
        raise CallError("no ELF of little-endian words.")
    try:
        header = struct.unpack_from(_HEADERS[elf[4]], elf, 4)
        start, size, count = header[4], header[8], header[9]
        kind, order = _SEGMENTS[elf[4]]
        spans = []
        for number in range(count):
            fields = struct.unpack_from(kind, elf, start + number * size)
            type_, flags, address, length = (fields[i] for i in order)
            if type_ == _LOAD and flags & _EXECUTABLE and length:
                spans.append((address, address + length))
    except struct.error:
        raise CallError("an ELF that ends before its segments do.") from None
    return max(end for _, end in spans) - min(begin for begin, _ in spans) if spans else 0


def sizes_of(elves: list[Path]) -> dict[str, int]:
    """By the name that aiecc gives a core: bytes of its program. CallError names a file that is no ELF."""
    found = {}
    for path in sorted(elves):
        try:
            found[path.stem.removeprefix("elfs_")] = program_bytes(path.read_bytes())
        except CallError as error:
            raise CallError(f"{printable(path)}: {error}") from None
    return found


def program_sizes(folder: Path) -> dict[str, int]:
    """Of what was built into a folder: the cores, as "<device>_core_<column>_<row>", and the bytes of their programs."""
    return {str(core): int(size) for core, size in json.loads((folder / FILE).read_text(encoding="utf-8")).items()}
