"""GGUF files: a header of metadata and tensor places, and the tensors, mapped where they lie."""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from iron_core import (
    IQ4_NL,
    IQ4_XS,
    MXFP4,
    Q2_K,
    Q3_K,
    Q4_0,
    Q4_1,
    Q4_K,
    Q5_0,
    Q5_1,
    Q5_K,
    Q6_K,
    Q8_0,
    Dense,
    Format,
    bfloat16,
)
from iron_core.errors import CheckpointError, FormatError
from iron_lm.checkpoints.mapped import MappedFile
from iron_lm.checkpoints.tensors import Tensors

MAGIC = b"GGUF"
#: How files of a checkpoint in several are named.
_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")
_MOST_PARTS = 256
#: ggml tensor types Iron reads, by number.
FORMATS: dict[int, Format] = {
    0: Dense(np.float32),
    1: Dense(np.float16),
    2: Q4_0,
    3: Q4_1,
    6: Q5_0,
    7: Q5_1,
    8: Q8_0,
    10: Q2_K,
    11: Q3_K,
    12: Q4_K,
    13: Q5_K,
    14: Q6_K,
    20: IQ4_NL,
    23: IQ4_XS,
    30: Dense(bfloat16),
    39: MXFP4,
}
_TYPE_NAMES = {
    9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 21: "IQ3_S", 22: "IQ2_S",
    24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 40: "NVFP4",
}  # fmt: skip
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
_ENTRIES, _ENTRY, _TEXT = 1 << 21, 32, 1 << 25


class _Header:
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
        self.spend(_ENTRY, n, what)
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
        self.spend(_ENTRY, 0, what)
        if kind == _STRING:
            return self.strings(n, what)
        self.spend(_ENTRY if depth == 1 else 4 * _ENTRY, 0, what)  # arrays of arrays, which no model has, are read one by one
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


@attrs.frozen
class Place:
    """A tensor's name, shape and ggml type (`kind`) as the header has them; it lies at bytes `begin` to `end` of the file."""

    name: str
    shape: tuple[int, ...]
    kind: int
    begin: int
    end: int


@attrs.frozen(eq=False)
class Layout:
    """Where everything is in a file: metadata up to the byte `pairs_end`, then the tensors' `places`, in the header's order; what lies
    behind that begins at multiples of `alignment`."""

    file: MappedFile
    pairs_end: int
    alignment: int
    places: tuple[Place, ...]


def _layout(file: MappedFile, pairs_end: int, alignment: int, data: int, infos: list[tuple[str, tuple[int, ...], int, int]]) -> Layout:
    """Of a file whose tensors were checked. One of an unknown type ends where the next begins."""
    begins = sorted({data + offset for _, _, _, offset in infos} | {file.size})
    places = []
    for name, shape, kind, offset in infos:
        begin, format = data + offset, FORMATS.get(kind)
        after = bisect_right(begins, begin)
        end = begin + format.nbytes(shape) if format is not None else begins[after] if after < len(begins) else begin
        places.append(Place(name, shape, kind, begin, end))
    return Layout(file, pairs_end, alignment, tuple(places))


class GGUFFile:
    """An open GGUF file: `metadata` (name -> value), `tensors` (name -> (shape, Format, array)) and the bytes of its `header`.

    Shapes are numpy's (outermost first). Arrays are views of the map: numpy arrays for dense types, PackedArray for
    block types and K-quants. A tensor of a type Iron does not take is refused when it is asked for, naming the type.
    """

    kind = "gguf"

    def __init__(self, path: str | Path, whole: bool = True) -> None:
        path = Path(path)
        if path.is_dir():
            path = _only(path)
        file = MappedFile(path)
        if file.read(0, 4, "the magic number") != MAGIC:
            raise CheckpointError(f"{path}: not a GGUF file.")
        header = _Header(file)
        version = header.scalar("<I", "the version")
        if version not in (2, 3):
            raise CheckpointError(f"{path}: GGUF version {version}; this iron reads 2 and 3.")
        tensors, pairs = header.count("the number of tensors"), header.count("the number of metadata entries")
        header.spend(_ENTRY * (tensors + pairs), 0, f"{tensors} tensors and {pairs} metadata entries")
        self.path, self.described = path, f"GGUF {version}"
        self.metadata: dict[str, Any] = {}
        for i in range(pairs):
            key = header.name(f"metadata key {i}")
            self.metadata[key] = header.value(header.scalar("<I", f"the type of {key}"), key)
        pairs_end = header.at
        infos = [self._info(header, i) for i in range(tensors)]
        alignment = self.metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1):
            raise CheckpointError(f"{path}: general.alignment is not a power of two.")
        data = (header.at + alignment - 1) // alignment * alignment
        self._file = file
        self.header = file.bytes[: header.at]
        self.tensors = _tensors(file, data, infos)
        self._laid = [(file, pairs_end, alignment, data, infos)]
        count = self.metadata.get("split.count", 1)
        if whole and (not isinstance(count, int) or count > 1):
            self._join(count)

    def _join(self, count: Any) -> None:
        """Take in the other files of a checkpoint in `count` of them; the first has the metadata."""
        named = _PART.fullmatch(self.path.name)
        if named is None or not isinstance(count, int) or int(named[3]) != count or count > _MOST_PARTS:
            raise CheckpointError(
                f"{self.path}: one of {str(count)[:20]!r} files by its header; legal: a name that ends in -00001-of-0000N.gguf."
            )
        parts = [GGUFFile(self.path.with_name(f"{named[1]}-{i:05d}-of-{count:05d}.gguf"), whole=False) for i in range(1, count + 1)]
        first = parts[0]
        for part in parts:
            if part.metadata.get("split.count") != count:
                raise CheckpointError(f"{part.path}: its header does not say it is one of {count} files, as {self.path.name} does.")
        for part in parts[1:]:
            first.tensors.join(part.tensors, part.path)
        self.path, self.metadata, self.tensors, self._file = first.path, first.metadata, first.tensors, first._file
        self.header, self._laid = first.header, [part._laid[0] for part in parts]
        self.described = f"{first.described}, {count} files"

    @property
    def layouts(self) -> list[Layout]:
        """Where everything is, a file each."""
        return [_layout(*laid) for laid in self._laid]

    @staticmethod
    def _info(header: _Header, i: int) -> tuple[str, tuple[int, ...], int, int]:
        name = header.name(f"the name of tensor {i}")
        rank = header.scalar("<I", f"the rank of {name}")
        if not 1 <= rank <= 4:
            raise CheckpointError(f"{header.file.path}: tensor {name} has {rank} dimensions; GGUF allows 1 to 4.")
        shape = tuple(header.count(f"a dimension of {name}") for _ in range(rank))[::-1]
        if 0 in shape:
            raise CheckpointError(f"{header.file.path}: tensor {name} has shape {list(shape)}; legal: 1 or more along each axis.")
        return name, shape, header.scalar("<I", f"the type of {name}"), header.scalar("<Q", f"the offset of {name}")

    @classmethod
    def sniff(cls, path: str | Path, head: bytes) -> bool:
        """Does a file beginning with `head` look like GGUF, or has a folder such files?"""
        return head.startswith(MAGIC) or (Path(path).is_dir() and any(Path(path).glob("*.gguf")))

    @classmethod
    def open(cls, path: str | Path) -> GGUFFile:
        """Map a file and read its header; CheckpointError if it is damaged."""
        return cls(path)


def _only(folder: Path) -> Path:
    """The one GGUF of a folder; CheckpointError, with their names, if there are several."""
    parts = {path: _PART.fullmatch(path.name) for path in sorted(folder.glob("*.gguf"))}
    found = [path for path, part in parts.items() if part is None or int(part[2]) == 1] or list(parts)
    if len(found) > 1:
        shown = ", ".join(p.name if p.name.isprintable() else repr(p.name) for p in found[:6])
        raise CheckpointError(f"{folder}: holds {len(found)} GGUF files; name one of {shown}{', ...' if len(found) > 6 else ''}.")
    return found[0]


def _tensors(file: MappedFile, data: int, infos: list[tuple[str, tuple[int, ...], int, int]]) -> Tensors:
    """The tensors of a file; every place is checked against it."""
    found = Tensors()
    places: list[tuple[int, int, str]] = []
    for name, shape, kind, offset in infos:
        if name in found or name in found.refused:
            raise CheckpointError(f"{file.path}: two tensors are named {name}.")
        format = FORMATS.get(kind)
        if format is None:
            found.refused[name] = (
                f"{file.path}: tensor {name} is {_TYPE_NAMES.get(kind, f'of type {kind}')}. Legal: "
                f"{', '.join(f.name.upper() if f.packed else f.name for f in FORMATS.values())}."
            )
            places.append((offset, 0, name))  # its length is its type's secret, but it begins somewhere
            continue
        try:
            size = format.nbytes(shape)
        except FormatError as error:
            raise CheckpointError(f"{file.path}: tensor {name}: {error}") from None
        raw = file.view(data + offset, size, f"tensor {name}")
        places.append((offset, size, name))
        if (data + offset) % format.dtype.itemsize:
            raise CheckpointError(f"{file.path}: tensor {name} is not aligned to its dtype.")
        found[name] = (shape, format, format.tensor(raw, shape))
    end, before = 0, ""
    for offset, size, name in sorted(places):
        if offset < end:
            raise CheckpointError(f"{file.path}: tensor {name} overlaps {before}; the header is damaged.")
        end, before = offset + size, name
    return found
