"""The header of a GGUF file, front to back: its numbers, strings, and arrays of either."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from iron_core.errors import CheckpointError
from iron_lm.checkpoints.mapped import MappedFile

MAGIC = b"GGUF"
_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
#: More of anything than this in a header is damage, not a model.
_MOST = 1 << 24
_LONGEST_NAME = 1 << 10
_LONGEST_STRING = 1 << 24
_LONGEST_TOKEN = 1 << 16
_DEEPEST = 4
#: What all of a header together may hold: entries, each string of an array counting as one and others as several; and
#: bytes of strings outside arrays. Reading so much takes a fraction of a second; the largest vocabularies have a million.
_ENTRIES, ENTRY, _TEXT = 1 << 21, 32, 1 << 25


class Header:
    """Reads the header front to back."""

    def __init__(self, file: MappedFile) -> None:
        self.file = file
        self.at = len(MAGIC)
        self.entries, self.text = _ENTRIES, _TEXT

    def spend(self, entries: int, text: int, what: str) -> None:
        """Count what was found towards what a header may hold."""
        self.entries -= entries
        self.text -= text
        if self.entries < 0 or self.text < 0:
            raise CheckpointError(f"{self.file.path}: with {what} the header holds more than any model's; it is damaged.")

    def scalar(self, code: str, what: str) -> Any:
        size = struct.calcsize(code)
        (value,) = struct.unpack(code, self.file.read(self.at, size, what))
        self.at += size
        return value

    def count(self, what: str, most: int = _MOST) -> int:
        n: int = self.scalar("<Q", what)
        if n > most:
            raise CheckpointError(f"{self.file.path}: {what} is {n}; more than {most} means the header is damaged.")
        return n

    def string(self, what: str) -> str:
        n = self.count(f"the length of {what}", _LONGEST_STRING)
        self.spend(ENTRY, n, what)
        raw = self.file.read(self.at, n, what)
        self.at += n
        return raw.decode("utf-8", "replace")

    def name(self, what: str) -> str:
        """A string that names something: printable, so that a message about it is one line."""
        found = self.string(what)
        if not 0 < len(found) <= _LONGEST_NAME or not found.isprintable():
            raise CheckpointError(f"{self.file.path}: {what} is {found[:40]!r}, which names nothing; the header is damaged.")
        return found

    def value(self, kind: int, what: str) -> Any:
        if kind == _STRING:
            return self.string(what)
        if kind == _ARRAY:
            return self.array(what)
        if kind not in _SCALARS:
            raise CheckpointError(f"{self.file.path}: {what} is of metadata type {kind}, which GGUF does not have.")
        return self.scalar(_SCALARS[kind], what)

    def array(self, what: str, depth: int = 1) -> Any:
        if depth > _DEEPEST:
            raise CheckpointError(f"{self.file.path}: {what} nests arrays more than {_DEEPEST} deep; the header is damaged.")
        kind, n = self.scalar("<I", what), self.count(f"the length of {what}")
        self.spend(ENTRY, 0, what)
        if kind == _STRING:
            return self.strings(n, what)
        self.spend(ENTRY if depth == 1 else 4 * ENTRY, 0, what)  # arrays of arrays, which no model has, are read one by one
        if kind == _ARRAY:
            return [self.array(what, depth + 1) for _ in range(n)]
        if kind not in _SCALARS:
            raise CheckpointError(f"{self.file.path}: {what} holds metadata type {kind}, which GGUF does not have.")
        dtype = np.dtype(_SCALARS[kind])
        raw = self.file.view(self.at, n * dtype.itemsize, what)
        self.at += len(raw)
        return Numbers(raw.view(dtype))  # over the map, aligned or not

    def strings(self, n: int, what: str) -> Strings:
        """Skip over n strings, noting where they lie: a vocabulary is read only by a tokenizer made from it."""
        self.spend(n, 0, what)
        start, at, size = self.at, self.at, self.file.size
        raw, unpack = self.file._map, struct.Struct("<Q").unpack_from
        for i in range(n):
            if at + 8 > size:
                at += 8
                break
            length = unpack(raw, at)[0]
            if length > _LONGEST_TOKEN:
                raise CheckpointError(
                    f"{self.file.path}: entry {i} of {what} claims {length} bytes; more than {_LONGEST_TOKEN} means the header is damaged."
                )
            at += 8 + length
            if at > size:
                break
        self.at = at
        self.file.read(start, at - start, what)
        return Strings(self.file, start, n)


class Numbers:
    """An array of numbers. It equals itself alone: where one number is expected, an array of them compares as another value."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __len__(self) -> int:
        return len(self._array)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self._array if dtype is None else self._array.astype(dtype)

    def tolist(self) -> list[Any]:
        """All of them, as Python's."""
        return self._array.tolist()  # type: ignore[no-any-return]


class Strings:
    """An array of strings, decoded when asked for."""

    def __init__(self, file: MappedFile, start: int, count: int) -> None:
        self._file, self._start, self._count = file, start, count

    def __len__(self) -> int:
        return self._count

    def decode(self) -> list[str]:
        """All of them."""
        raw, at, found = self._file._map, self._start, []
        unpack = struct.Struct("<Q").unpack_from
        for _ in range(self._count):
            (n,) = unpack(raw, at)
            found.append(raw[at + 8 : at + 8 + n].decode("utf-8", "replace"))
            at += 8 + n
        return found
