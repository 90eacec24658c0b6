"""`AcmeFile`: a reader of weight files.

Such a file is a line of JSON, zeros up to a multiple of 64 bytes, then the tensors' bytes. In the JSON are its kind and version, with
which it begins; `config`, which is what a config.json says of a model and may be empty; and `tensors`: by name `shape`, `format` (a
dtype's name or a format's) and `offset` in bytes behind the header. A language model runs from a file whose `config` names its
`model_type` and whose tensors have the names that its family looks for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from iron_core.declare.formats import as_format
from iron_core.errors import CheckpointError, IronError

MAGIC = b'{"acme": 1,'
ALIGN = 64
#: A longer header is no header.
MOST = 1 << 24


class AcmeFile:
    """An open file. metadata: {"config": {...}}; tensors: name -> (shape, format, array), over the mapped file."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        with self.path.open("rb") as file:
            line = file.readline(MOST)
        try:
            said = json.loads(line)
            self.metadata: dict[str, Any] = {"config": dict(said["config"])}
            entries = {str(name): (tuple(e["shape"]), as_format(e["format"]), int(e["offset"])) for name, e in said["tensors"].items()}
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, IronError) as error:
            what = f"{type(error).__name__}: {error}"
            raise CheckpointError(f"{path}: its first line is no header of acme 1 ({what}).") from error
        self.described = "Acme 1"
        start = _aligned(len(line))
        size = self.path.stat().st_size - start
        raw = np.memmap(self.path, np.uint8, "r") if size > 0 else np.empty(0, np.uint8)
        self.tensors: dict[str, tuple[tuple[int, ...], Any, Any]] = {}
        for name, (shape, format, offset) in entries.items():
            if not all(type(n) is int and n >= 0 for n in shape):
                raise CheckpointError(f"{path}: {name} has shape {list(shape)}; legal: whole numbers from 0.")
            end = offset + format.nbytes(shape)
            if offset % ALIGN or not 0 <= offset <= end <= size:
                raise CheckpointError(f"{path}: {name} is bytes {offset} to {end} of {size}; legal: within, from a multiple of {ALIGN} on.")
            self.tensors[name] = (shape, format, format.tensor(raw[start + offset : start + end], shape))

    @classmethod
    def sniff(cls, path: str | Path, head: bytes) -> bool:
        """Is it such a file? head: its first bytes, empty for a folder."""
        return head.startswith(MAGIC)

    @classmethod
    def open(cls, path: str | Path) -> AcmeFile:
        """Read the header and map the rest; CheckpointError where it is damaged."""
        return cls(path)


def write(path: str | Path, tensors: Mapping[str, Any], config: Mapping[str, Any] | None = None) -> None:
    """Write arrays and `PackedArray`s, by name, to a file that can be opened. config: what a config.json says of a model."""
    entries, parts, offset = {}, [], 0
    for name, tensor in tensors.items():
        packed = hasattr(tensor, "dequantize")
        data = np.ascontiguousarray(tensor.data if packed else tensor).reshape(-1).view(np.uint8)
        format = tensor.format.name if packed else tensor.dtype.name
        entries[name] = {"shape": list(tensor.shape), "format": format, "offset": offset}
        parts.append((offset, data))
        offset = _aligned(offset + data.size)
    line = json.dumps({"acme": 1, "config": dict(config or {}), "tensors": entries}).encode() + b"\n"
    with Path(path).open("wb") as file:
        file.write(line)
        for at, data in parts:
            file.seek(_aligned(len(line)) + at)
            file.write(data.tobytes())


def _aligned(n: int) -> int:
    return -(-n // ALIGN) * ALIGN
