"""JSON of a checkpoint, read without taking many times its size in memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from iron_core.errors import CheckpointError
from iron_lm.checkpoints.mapped import MappedFile

#: Bytes of JSON that are read: safetensors allows 100 MiB of header, which would take seconds and a gigabyte to parse; the
#: largest models' headers and indices have a few.
MOST_BYTES = 16 << 20
#: Bytes there are, in a text that describes tensors, for each object it holds.
_BYTES_AN_OBJECT = 24


def read_json(path: Path) -> dict[str, Any]:
    """The object of a JSON file; CheckpointError if it cannot be read, or holds something else."""
    found = read_any(path)
    if not isinstance(found, dict):
        raise CheckpointError(f"{path}: not a JSON object.")
    return found


def read_any(path: Path) -> Any:
    """What a JSON file holds; CheckpointError if it cannot be read."""
    file = MappedFile(path)
    if file.size > MOST_BYTES:
        raise CheckpointError(f"{path}: {file.size} bytes of JSON; legal: up to {MOST_BYTES}.")
    raw = file.read(0, file.size, "its text")
    try:
        return parse(raw)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not JSON ({str(error)[:80]!r}).") from None


def parse(raw: bytes) -> Any:
    """A JSON text; ValueError for one that is mostly brackets, which would take many times its size in memory."""
    if raw.count(b"{") + raw.count(b"[") > 4096 + len(raw) // _BYTES_AN_OBJECT:
        raise ValueError("more brackets than any description of tensors has")
    return json.loads(raw)
