"""Safetensors files, and folders of them with an index, mapped where they lie."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

from iron_core.declare.formats import Dense, Format, bfloat16
from iron_core.errors import CheckpointError
from iron_lm.mapped import MappedFile

DTYPES = {"F32": np.dtype(np.float32), "F16": np.dtype(np.float16), "BF16": bfloat16}
_MOST_HEADER = 100 << 20  # the format's own limit
INDEX = "model.safetensors.index.json"


def read_json(path: Path) -> dict[str, Any]:
    """The object of a JSON file; CheckpointError if it cannot be read, or holds something else."""
    try:
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror or error}.") from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not JSON ({error}).") from None
    if not isinstance(found, dict):
        raise CheckpointError(f"{path}: not a JSON object.")
    return found


def read_file(path: Path) -> tuple[dict[str, tuple[tuple[int, ...], Format, Any]], dict[str, str]]:
    """Tensors and `__metadata__` of one file; CheckpointError if it is damaged."""
    file = MappedFile(path)
    (length,) = struct.unpack("<Q", file.read(0, 8, "the header's length"))
    if length > _MOST_HEADER:
        raise CheckpointError(f"{path}: the header claims {length} bytes; the format allows {_MOST_HEADER}.")
    raw = file.read(8, length, "the header")
    try:
        header = json.loads(raw)
        metadata = header.pop("__metadata__", {})
        entries = [(n, e["dtype"], tuple(e["shape"]), e["data_offsets"]) for n, e in header.items()]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{path}: the header is not what safetensors says it is ({type(error).__name__}: {error}).") from None
    start, end_before = 8 + length, 0
    tensors: dict[str, tuple[tuple[int, ...], Format, Any]] = {}
    for name, kind, shape, offsets in entries:
        if not name.isprintable():
            raise CheckpointError(f"{path}: {name[:40]!r} names no tensor; the header is damaged.")
        if not isinstance(kind, str) or kind not in DTYPES:
            raise CheckpointError(f"{path}: tensor {name} is {str(kind)[:40]!r}. Legal: {', '.join(DTYPES)}.")
        places = offsets if isinstance(offsets, list) else ()
        if len(places) != 2 or not all(isinstance(n, int) and 0 <= n < 1 << 48 for n in (*shape, *places)):
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
            file = folder / "model.safetensors" if self.path.is_dir() else self.path
            self.tensors, self.metadata["file"] = read_file(file)
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
            if not isinstance(file, str) or Path(file).name != file:
                raise CheckpointError(f"{index}: tensor {name} is in {file!r}; legal: the name of a file beside the index.")
            if file not in files:
                files[file] = read_file(index.parent / file)[0]
            if name not in files[file]:
                raise CheckpointError(f"{index}: tensor {name} is not in {file}, where the index says it is.")
            tensors[name] = files[file][name]
        return tensors

    @classmethod
    def sniff(cls, path: str | Path, head: bytes) -> bool:
        """Is it a .safetensors file, an index of some, or a folder with either?"""
        path = Path(path)
        if path.is_dir():
            return (path / INDEX).exists() or (path / "model.safetensors").exists()
        return path.name.endswith((".safetensors", ".safetensors.index.json")) or head[8:10] == b'{"'

    @classmethod
    def open(cls, path: str | Path) -> SafetensorsFile:
        """Map it and read its header; CheckpointError if it is damaged."""
        return cls(path)
