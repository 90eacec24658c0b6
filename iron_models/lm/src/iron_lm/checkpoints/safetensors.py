"""Safetensors files, mapped where they lie. The `safetensors` package, which would read them, copies every tensor: docs/models.md."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from iron_core import Dense, bfloat16
from iron_core.errors import CheckpointError
from iron_lm.checkpoints.hub_files import HubFiles
from iron_lm.checkpoints.mapped import MappedFile
from iron_lm.checkpoints.packed_linears import unpack
from iron_lm.checkpoints.safetensors_header import Entry, read_header
from iron_lm.checkpoints.tensors import Tensors

DTYPES = {"F32": np.dtype(np.float32), "F16": np.dtype(np.float16), "BF16": bfloat16}
#: What packers store integers and indices as.
INTEGERS: dict[str, np.dtype] = {"I32": np.dtype(np.int32), "I64": np.dtype(np.int64)}


class SafetensorsFile(HubFiles):
    """An open `.safetensors` file, one of several parts, a sharded index, or the folder holding any of these."""

    kind = "safetensors"
    label = "safetensors"
    pattern = "*.safetensors"
    index = "model.safetensors.index.json"

    @classmethod
    def sniff(cls, path: str | Path, head: bytes) -> bool:
        """Is it a .safetensors file, an index of some, or a folder with either?"""
        path = Path(path)
        if path.is_dir():
            return cls.held(path)
        if path.suffix == ".q4nx":  # this container, of another format's tensors
            return False
        return path.name.endswith((".safetensors", ".safetensors.index.json")) or head[8:10] == b'{"'

    def __init__(self, path: str | Path, gptq_zeros: str | None = None) -> None:
        super().__init__(path)
        packing = unpack(self.tensors, self.metadata.get("config", {}), self.path, gptq_zeros)
        if packing:
            self.described += f", {packing}"

    @classmethod
    def open(cls, path: str | Path, gptq_zeros: str | None = None) -> SafetensorsFile:
        """Map its files and read where their tensors are; CheckpointError if one is damaged. gptq_zeros: how zero points are stored in
        a file of GPTQ's that does not say it, one of `gptq.CONVENTIONS`."""
        return cls(path, gptq_zeros)

    @staticmethod
    def read(path: Path) -> Tensors:
        """The tensors of one file; CheckpointError if it is damaged."""
        return tensors_of(MappedFile(path))


def tensors_of(file: MappedFile) -> Tensors:
    """The tensors of an open file; CheckpointError if it is damaged."""
    tensors = Tensors()
    for entry in read_header(file).entries:
        if entry.dtype not in DTYPES:
            file.view(entry.begin, entry.end - entry.begin, f"tensor {entry.name}")
            if entry.dtype in INTEGERS:
                tensors.integers[entry.name] = _array(file, entry, INTEGERS[entry.dtype])
            tensors.refused[entry.name] = f"{file.path}: tensor {entry.name} is {entry.dtype[:40]!r}. Legal: {', '.join(DTYPES)}."
        else:
            tensors[entry.name] = dense_tensor(file, entry)
    return tensors


def dense_tensor(file: MappedFile, entry: Entry) -> tuple[tuple[int, ...], Dense, np.ndarray]:
    """Shape, format and array of a tensor of one of `DTYPES`; CheckpointError where its place is of another size."""
    dtype = DTYPES[entry.dtype]
    return entry.shape, Dense(dtype), _array(file, entry, dtype)


def _array(file: MappedFile, entry: Entry, dtype: np.dtype) -> np.ndarray:
    name, shape, size = entry.name, entry.shape, math.prod(entry.shape) * dtype.itemsize
    data = file.view(entry.begin, entry.end - entry.begin, f"tensor {name}")
    if len(data) != size:
        raise CheckpointError(f"{file.path}: tensor {name}, {entry.dtype} {shape}, is {size} bytes; its place has {len(data)}.")
    if entry.begin % dtype.itemsize:
        data = data.copy()  # the format does not promise alignment; a view needs it
    try:
        return data.view(dtype).reshape(shape)
    except ValueError:  # no numbers, and more of them along the other axes, or more axes, than an array may have
        raise CheckpointError(f"{file.path}: tensor {name} has shape {str(shape)[:60]}, which no tensor has.") from None
