"""`StateFile`: named arrays of a session in one file of safetensors, which ends with a digest of all bytes before it."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from iron_core.errors import CheckpointError, printable
from iron_core.files import whole_file
from iron_lm.checkpoints.mapped import MappedFile
from iron_lm.checkpoints.safetensors import DTYPES, INTEGERS
from iron_lm.checkpoints.safetensors_header import Entry, read_header

#: What the metadata of every such file say. Changes whenever what stands in them does.
KIND = "iron state 1"
_NAMES = {dtype: name for name, dtype in (DTYPES | INTEGERS | {"U8": np.dtype(np.uint8)}).items()}
_DIGEST, _HASHED = 32, 1 << 24


@attrs.frozen
class Tensor:
    """One to be written: `make` gives it when its turn comes, so that one at a time is in memory."""

    shape: tuple[int, ...]
    dtype: np.dtype
    make: Callable[[], np.ndarray]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def write(path: str | bytes | Path, metadata: Mapping[str, str], tensors: Mapping[str, Tensor]) -> None:
    """Write a file, whole or not at all. OSError where it cannot be."""
    header: dict[str, Any] = {"__metadata__": {"kind": KIND, **metadata}}
    at = 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [at, at + tensor.nbytes]}
        at += tensor.nbytes
    header["digest"] = {"dtype": "U8", "shape": [_DIGEST], "data_offsets": [at, at + _DIGEST]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    hashed = hashlib.blake2b(digest_size=_DIGEST)
    with whole_file(path) as file:
        head: tuple[bytes | memoryview, ...] = (len(text).to_bytes(8, "little"), text)
        for data in itertools.chain(head, map(_bytes, tensors.values())):
            hashed.update(data)
            file.write(data)
        file.write(hashed.digest())


def _bytes(tensor: Tensor) -> bytes | memoryview:
    array = np.ascontiguousarray(tensor.make())
    assert array.shape == tensor.shape and array.dtype == tensor.dtype
    return array.reshape(-1).view(np.uint8).data


class StateFile:
    """One that is there, whose bytes are those that were written. CheckpointError otherwise, in one line."""

    def __init__(self, path: str | Path) -> None:
        self.path = printable(str(path), 200)
        self._file = file = MappedFile(path)
        header = read_header(file)
        self.metadata = {name: str(value) for name, value in header.metadata.items()}
        if self.metadata.get("kind") != KIND:
            raise self.refused("it is no state that this version of Iron writes")
        self._entries = {entry.name: entry for entry in header.entries}
        digest = self._entry("digest")
        said, hashed = bytes(self._data(digest)), hashlib.blake2b(digest_size=_DIGEST)
        for start in range(0, digest.begin, _HASHED):
            hashed.update(file.bytes[start : min(start + _HASHED, digest.begin)].data)
        if digest.end != file.size or hashed.digest() != said:
            raise self.refused("its bytes are not those that were written")

    def refused(self, why: str) -> CheckpointError:
        """What is raised for it."""
        return CheckpointError(f"{self.path}: {why}.")

    @property
    def names(self) -> set[str]:
        """Of its tensors, but for the digest."""
        return self._entries.keys() - {"digest"}

    def check(self, whose: Mapping[str, str]) -> None:
        """CheckpointError for the first of these metadata that it has otherwise."""
        for name, here in whose.items():
            there = self.metadata.get(name, "")
            if there != here:
                told = f" ({printable(there, 60)} there, {printable(here, 60)} here)" if max(len(there), len(here)) <= 60 else ""
                raise self.refused(f"the state of another model, whose {name} is another{told}. Legal: the model and options that wrote it")

    def shape(self, name: str) -> tuple[int, ...]:
        """Of a tensor; CheckpointError where it has none of this name."""
        return self._entry(name).shape

    def array(self, name: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """A tensor, the file's own bytes unless they lie askew; CheckpointError for one of another shape or dtype."""
        entry = self._entry(name)
        data = self._data(entry)
        if entry.shape != shape or entry.dtype != _NAMES[dtype] or len(data) != math.prod(shape) * dtype.itemsize:
            said = f"{entry.dtype[:10]} {list(entry.shape)} there, {_NAMES[dtype]} {list(shape)} here"
            raise self.refused(f"the state of another model, whose {name} is another ({said})")
        return (data.copy() if entry.begin % dtype.itemsize else data).view(dtype).reshape(shape)

    def _entry(self, name: str) -> Entry:
        if name not in self._entries:
            raise self.refused(f"it has no {name}; it is damaged, or the state of another model")
        return self._entries[name]

    def _data(self, entry: Entry) -> np.ndarray:
        return self._file.view(entry.begin, entry.end - entry.begin, f"tensor {entry.name}")
