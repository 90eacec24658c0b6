"""GGUF files: a header of metadata and tensor places, and the tensors, mapped where they lie."""

from __future__ import annotations

import re
from bisect import bisect_right
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
from iron_lm.checkpoints.gguf_header import ENTRY, MAGIC, Header
from iron_lm.checkpoints.mapped import MappedFile
from iron_lm.checkpoints.tensors import Tensors

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
        header = Header(file)
        version = header.scalar("<I", "the version")
        if version not in (2, 3):
            raise CheckpointError(f"{path}: GGUF version {version}; this iron reads 2 and 3.")
        tensors, pairs = header.count("the number of tensors"), header.count("the number of metadata entries")
        header.spend(ENTRY * (tensors + pairs), 0, f"{tensors} tensors and {pairs} metadata entries")
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
    def _info(header: Header, i: int) -> tuple[str, tuple[int, ...], int, int]:
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
