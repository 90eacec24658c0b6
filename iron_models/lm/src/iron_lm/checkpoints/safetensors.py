"""Safetensors files, mapped where they lie. The `safetensors` package, which would read them, copies every tensor: docs/models.md."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from iron_core import Dense, bfloat16
from iron_core.errors import CheckpointError
from iron_lm.checkpoints.bounded_json import MOST_BYTES, parse
from iron_lm.checkpoints.hub_files import HubFiles
from iron_lm.checkpoints.mapped import MappedFile
from iron_lm.checkpoints.tensors import Tensors

DTYPES = {"F32": np.dtype(np.float32), "F16": np.dtype(np.float16), "BF16": bfloat16}
_MOST_AXES = 16


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
        return path.name.endswith((".safetensors", ".safetensors.index.json")) or head[8:10] == b'{"'

    @staticmethod
    def read(path: Path) -> Tensors:
        """The tensors of one file; CheckpointError if it is damaged."""
        file = MappedFile(path)
        (length,) = struct.unpack("<Q", file.read(0, 8, "the header's length"))
        if length > MOST_BYTES:
            raise CheckpointError(f"{path}: the header claims {length} bytes; legal: up to {MOST_BYTES}.")
        raw = file.read(8, length, "the header")
        try:
            header = parse(raw)
            header.pop("__metadata__", None)
            entries = [(n, e["dtype"], tuple(e["shape"]), e["data_offsets"]) for n, e in header.items()]
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            why = f"{type(error).__name__}: {error}"[:80]
            raise CheckpointError(
                f"{path}: the header is not what safetensors says it is ({why if why.isprintable() else repr(why)})."
            ) from None
        for name, dtype, shape, offsets in entries:
            if not name.isprintable():
                raise CheckpointError(f"{path}: {name[:40]!r} names no tensor; the header is damaged.")
            if not isinstance(dtype, str):
                raise CheckpointError(_other(path, name, dtype))
            places = offsets if isinstance(offsets, list) else ()
            if len(shape) > _MOST_AXES or len(places) != 2 or not all(isinstance(n, int) and 0 <= n < 1 << 48 for n in (*shape, *places)):
                raise CheckpointError(f"{path}: tensor {name} has shape {str(shape)[:60]} at {str(offsets)[:60]}, which no tensor has.")
        start, end_before, tensors = 8 + length, 0, Tensors()
        for name, dtype, shape, (begin, end) in sorted(entries, key=lambda entry: entry[3]):
            if begin < end_before:
                raise CheckpointError(f"{path}: tensor {name} overlaps the one before it.")
            end_before = end
            data = file.view(start + begin, end - begin, f"tensor {name}")
            if dtype not in DTYPES:
                tensors.refused[name] = _other(path, name, dtype)
                continue
            format = Dense(DTYPES[dtype])
            size = format.nbytes(shape)
            if end - begin != size:
                raise CheckpointError(f"{path}: tensor {name}, {dtype} {shape}, is {size} bytes; its place has {end - begin}.")
            if (start + begin) % format.dtype.itemsize:
                data = data.copy()  # the format does not promise alignment; a view needs it
            try:
                tensors[name] = (shape, format, data.view(format.dtype).reshape(shape))
            except ValueError:  # no numbers, and more of them along the other axes, or more axes, than an array may have
                raise CheckpointError(f"{path}: tensor {name} has shape {str(shape)[:60]}, which no tensor has.") from None
        return tensors


def _other(path: Path, name: str, dtype: object) -> str:
    """Why a tensor of another dtype is refused."""
    return f"{path}: tensor {name} is {str(dtype)[:40]!r}. Legal: {', '.join(DTYPES)}."
