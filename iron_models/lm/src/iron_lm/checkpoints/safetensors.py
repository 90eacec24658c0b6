"""Safetensors files, and folders of them with an index, mapped where they lie."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

from iron_core import Dense, Format, bfloat16
from iron_core.errors import CheckpointError
from iron_lm.checkpoints.mapped import MappedFile

DTYPES = {"F32": np.dtype(np.float32), "F16": np.dtype(np.float16), "BF16": bfloat16}
#: Bytes of JSON that are read: the format allows 100 MiB of header, which would take seconds and a gigabyte to parse; the
#: largest models' headers and indices have a few.
_MOST_JSON = 16 << 20
_MOST_AXES = 16
#: Bytes there are, in a header that describes tensors, for each object it holds.
_BYTES_AN_OBJECT = 24
INDEX = "model.safetensors.index.json"


def read_json(path: Path) -> dict[str, Any]:
    """The object of a JSON file; CheckpointError if it cannot be read, or holds something else."""
    file = MappedFile(path)
    if file.size > _MOST_JSON:
        raise CheckpointError(f"{path}: {file.size} bytes of JSON; legal: up to {_MOST_JSON}.")
    raw = file.read(0, file.size, "its text")
    try:
        found = _parse(raw)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not JSON ({str(error)[:80]!r}).") from None
    if not isinstance(found, dict):
        raise CheckpointError(f"{path}: not a JSON object.")
    return found


def _parse(raw: bytes) -> Any:
    """A JSON text; ValueError for one that is mostly brackets, which would take many times its size in memory."""
    if raw.count(b"{") + raw.count(b"[") > 4096 + len(raw) // _BYTES_AN_OBJECT:
        raise ValueError("more brackets than any description of tensors has")
    return json.loads(raw)


def read_file(path: Path) -> tuple[dict[str, tuple[tuple[int, ...], Format, Any]], dict[str, str]]:
    """Tensors and `__metadata__` of one file; CheckpointError if it is damaged."""
    file = MappedFile(path)
    (length,) = struct.unpack("<Q", file.read(0, 8, "the header's length"))
    if length > _MOST_JSON:
        raise CheckpointError(f"{path}: the header claims {length} bytes; legal: up to {_MOST_JSON}.")
    raw = file.read(8, length, "the header")
    try:
        header = _parse(raw)
        metadata = header.pop("__metadata__", {})
        entries = [(n, e["dtype"], tuple(e["shape"]), e["data_offsets"]) for n, e in header.items()]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        why = f"{type(error).__name__}: {error}"[:80]
        raise CheckpointError(
            f"{path}: the header is not what safetensors says it is ({why if why.isprintable() else repr(why)})."
        ) from None
    start, end_before = 8 + length, 0
    tensors: dict[str, tuple[tuple[int, ...], Format, Any]] = {}
    for name, kind, shape, offsets in entries:
        if not name.isprintable():
            raise CheckpointError(f"{path}: {name[:40]!r} names no tensor; the header is damaged.")
        if not isinstance(kind, str) or kind not in DTYPES:
            raise CheckpointError(f"{path}: tensor {name} is {str(kind)[:40]!r}. Legal: {', '.join(DTYPES)}.")
        places = offsets if isinstance(offsets, list) else ()
        if len(shape) > _MOST_AXES or len(places) != 2 or not all(isinstance(n, int) and 0 <= n < 1 << 48 for n in (*shape, *places)):
            raise CheckpointError(f"{path}: tensor {name} has shape {str(shape)[:60]} at {str(offsets)[:60]}, which no tensor has.")
    for name, kind, shape, offsets in sorted(entries, key=lambda entry: entry[3]):
        format = Dense(DTYPES[kind])
        begin, end = offsets
        if end - begin != format.nbytes(shape):
            raise CheckpointError(f"{path}: tensor {name}, {kind} {shape}, is {format.nbytes(shape)} bytes; its place has {end - begin}.")
        if begin < end_before:
            raise CheckpointError(f"{path}: tensor {name} overlaps the one before it.")
        end_before = end
        data = file.view(start + begin, end - begin, f"tensor {name}")
        if (start + begin) % format.dtype.itemsize:
            data = data.copy()  # the format does not promise alignment; a view needs it
        try:
            tensors[name] = (shape, format, data.view(format.dtype).reshape(shape))
        except ValueError:  # no numbers, and more of them along the other axes, or more axes, than an array may have
            raise CheckpointError(f"{path}: tensor {name} has shape {str(shape)[:60]}, which no tensor has.") from None
    return tensors, metadata


class SafetensorsFile:
    """An open `.safetensors` file, a sharded index, or the folder holding either.

    `tensors`: name -> (shape, Format, array over the map). `metadata`: the folder's config.json if there is one, under
    "config", and the file's own `__metadata__`.
    """

    kind = "safetensors"

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        folder = self.path if self.path.is_dir() else self.path.parent
        index = folder / INDEX if self.path.is_dir() else self.path
        self.metadata: dict[str, Any] = {}
        if index.name.endswith(".index.json") and index.exists():
            self.tensors = self._sharded(index)
        else:
            file = _only(folder) if self.path.is_dir() else self.path
            self.tensors, self.metadata["file"] = read_file(file)
            self.described = "safetensors folder" if self.path.is_dir() else "safetensors file"
        config = folder / "config.json"
        if config.exists():
            self.metadata["config"] = read_json(config)

    def _sharded(self, index: Path) -> dict[str, tuple[tuple[int, ...], Format, Any]]:
        places = read_json(index).get("weight_map")
        if not isinstance(places, dict):
            raise CheckpointError(f"{index}: no weight_map.")
        files: dict[str, dict[str, Any]] = {}
        tensors = {}
        for name, file in places.items():
            if not name.isprintable() or not 0 < len(name) < 1024:
                raise CheckpointError(f"{index}: {name[:40]!r} names no tensor.")
            if not isinstance(file, str) or Path(file).name != file or file in (".", "..") or not file.isprintable():
                raise CheckpointError(f"{index}: tensor {name} is in {str(file)[:80]!r}; legal: the name of a file beside the index.")
            if file not in files:
                files[file] = read_file(index.parent / file)[0]
            if name not in files[file]:
                raise CheckpointError(f"{index}: tensor {name} is not in {file}, where the index says it is.")
            tensors[name] = files[file][name]
        self.described = f"safetensors index, {len(files)} file{'s' if len(files) != 1 else ''}"
        return tensors

    @classmethod
    def sniff(cls, path: str | Path, head: bytes) -> bool:
        """Is it a .safetensors file, an index of some, or a folder with either?"""
        path = Path(path)
        if path.is_dir():
            return (path / INDEX).exists() or any(path.glob("*.safetensors"))
        return path.name.endswith((".safetensors", ".safetensors.index.json")) or head[8:10] == b'{"'

    @classmethod
    def open(cls, path: str | Path) -> SafetensorsFile:
        """Map it and read its header; CheckpointError if it is damaged."""
        return cls(path)


def _only(folder: Path) -> Path:
    """The folder's model.safetensors, or else its only .safetensors file; CheckpointError if there are several."""
    usual, found = folder / "model.safetensors", sorted(folder.glob("*.safetensors"))
    if usual.exists() or len(found) == 1:
        return usual if usual.exists() else found[0]
    raise CheckpointError(f"{folder}: holds {len(found)} .safetensors files and no {INDEX}; name one of the files, or fetch the index.")
