"""The directory of a zip file whose entries are stored as they are, read from the map with every offset checked."""

from __future__ import annotations

import struct

import numpy as np

from iron_core.errors import CheckpointError
from iron_lm.checkpoints.mapped import MappedFile

_LOCAL, _CENTRAL, _END, _END64, _LOCATOR = b"PK\3\4", b"PK\1\2", b"PK\5\6", b"PK\6\6", b"PK\6\7"
_MOST_ENTRIES, _MOST_DIRECTORY = 1 << 16, 1 << 24
_ALL_ONES = 0xFFFFFFFF


class StoredZip:
    """Entries by name, each a view of the map. CheckpointError for anything a writer of uncompressed archives does not write."""

    def __init__(self, file: MappedFile) -> None:
        self.file = file
        self.entries: dict[str, np.ndarray] = {}
        at, size, count = self._end()
        if count > _MOST_ENTRIES or size > _MOST_DIRECTORY:
            raise self._damaged(f"its directory claims {count} entries in {size} bytes")
        directory = file.read(at, size, "the zip directory")
        places: list[tuple[int, int, str]] = []
        here = 0
        for _ in range(count):
            name, begin, length, here = self._entry(directory, here)
            if name in self.entries:
                raise self._damaged(f"two entries are named {name}")
            self.entries[name] = file.view(begin, length, f"entry {name}")
            places.append((begin, begin + length, name))
        before, end = "", 0
        for begin, finish, name in sorted(places):
            if begin < end:
                raise self._damaged(f"entry {name} overlaps {before}")
            before, end = name, finish

    def _damaged(self, why: str) -> CheckpointError:
        return CheckpointError(f"{self.file.path}: {why}; the zip file is damaged.")

    def _end(self) -> tuple[int, int, int]:
        """(offset, bytes, entries) of the directory, from the records at the end of the file."""
        file = self.file
        tail = min(file.size, 22 + 0xFFFF)
        last = file.read(file.size - tail, tail, "the end of the zip file")
        at = last.rfind(_END)
        if at < 0 or at + 22 > tail:
            raise CheckpointError(f"{file.path}: no zip directory at its end; it is cut short, or not a file torch.save wrote.")
        count, size, offset = struct.unpack_from("<HII", last, at + 10)
        here = file.size - tail + at
        if here >= 20 and file.read(here - 20, 4, "the zip64 locator") == _LOCATOR:
            (record,) = struct.unpack("<Q", file.read(here - 12, 8, "the zip64 locator"))
            raw = file.read(record, 56, "the zip64 directory record")
            if raw[:4] != _END64:
                raise self._damaged("its zip64 directory record is not where it should be")
            count, size, offset = struct.unpack_from("<QQQ", raw, 32)
        return offset, size, count

    def _entry(self, directory: bytes, at: int) -> tuple[str, int, int, int]:
        """(name, offset of its data, bytes, where the next one is) of the directory's entry at `at`."""
        if len(directory) < at + 46 or directory[at : at + 4] != _CENTRAL:
            raise self._damaged("its directory is cut short")
        flags, method = struct.unpack_from("<HH", directory, at + 8)
        packed, length, names, extras, comments = struct.unpack_from("<IIHHH", directory, at + 20)
        (offset,) = struct.unpack_from("<I", directory, at + 42)
        after = at + 46 + names + extras + comments
        if after > len(directory):
            raise self._damaged("its directory is cut short")
        name = directory[at + 46 : at + 46 + names].decode("utf-8", "replace")
        if not name.isprintable() or not 0 < len(name) < 1024:
            raise self._damaged(f"an entry is named {name[:40]!r}")
        packed, length, offset = self._zip64(directory[at + 46 + names : at + 46 + names + extras], packed, length, offset)
        if flags & 1 or method != 0 or packed != length:
            raise CheckpointError(f"{self.file.path}: entry {name} is compressed or encrypted; torch.save stores entries as they are.")
        local = self.file.read(offset, 30, f"the header of entry {name}")
        if local[:4] != _LOCAL:
            raise self._damaged(f"entry {name} is not where the directory says it is")
        return name, offset + 30 + sum(struct.unpack_from("<HH", local, 26)), length, after

    def _zip64(self, extra: bytes, *fields: int) -> list[int]:
        """The fields of an entry, those that are all ones replaced from its zip64 extra."""
        found, at = list(fields), 0
        order = (1, 0, 2)  # the extra has the length first, then the packed length, then the offset
        while at + 4 <= len(extra):
            kind, size = struct.unpack_from("<HH", extra, at)
            if kind == 1:
                values = (
                    [v for (v,) in struct.iter_unpack("<Q", extra[at + 4 : at + 4 + size // 8 * 8])] if at + 4 + size <= len(extra) else []
                )
                for i in order:
                    if found[i] == _ALL_ONES:
                        if not values:
                            raise self._damaged("an entry lacks its zip64 sizes")
                        found[i] = values.pop(0)
            at += 4 + size
        return found
