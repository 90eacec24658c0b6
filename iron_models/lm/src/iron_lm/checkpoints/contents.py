"""What a checkpoint holds, as facts for JSON: `iron checkpoints show`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from iron_core.errors import printable
from iron_lm.checkpoints.recognise import architecture

#: Entries of a list, and characters of a text, that are given whole.
_LISTED, _LETTERS = 16, 200
#: Objects in objects whose entries are given; config.json has two.
_DEEPEST = 4


def contents(checkpoint: Any) -> dict[str, Any]:
    """Path, kind, architecture and metadata of a checkpoint; its tensors in the file's order; those refused, with the reason;
    sums by format."""
    tensors = [
        {"name": name, "shape": list(shape), "format": str(format), "bytes": format.nbytes(shape)}
        for name, (shape, format, _) in checkpoint.tensors.items()
    ]
    formats: dict[str, dict[str, int]] = {}
    for one in tensors:
        of_format = formats.setdefault(one["format"], {"tensors": 0, "bytes": 0})
        of_format["tensors"] += 1
        of_format["bytes"] += one["bytes"]
    refused = getattr(checkpoint.tensors, "refused", {})
    return {
        "path": str(checkpoint.path),
        "kind": checkpoint.kind,
        "described": str(getattr(checkpoint.file, "described", checkpoint.kind)),
        "architecture": architecture(checkpoint) or None,
        "metadata": dict(_entries(checkpoint.metadata)),
        "tensors": tensors,
        "refused": [{"name": name, "reason": why} for name, why in refused.items()],
        "formats": dict(sorted(formats.items(), key=lambda item: -item[1]["bytes"])),
        "bytes": sum(one["bytes"] for one in tensors),
    }


def _entries(entries: Mapping[str, Any], prefix: str = "", depth: int = 1) -> Iterator[tuple[str, Any]]:
    """Key and value of each entry, those of an object in it as `outer.inner`."""
    for key, value in entries.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and depth < _DEEPEST:
            yield from _entries(value, f"{name}.", depth + 1)
        else:
            yield name, _in_short(value)


def _in_short(value: Any) -> Any:
    """A value as JSON has it; a long text cut, and of what is neither text nor number how much there is."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return value if len(value) <= _LETTERS else printable(value, _LETTERS)
    if isinstance(value, np.generic):
        return _in_short(value.item())
    count = len(value) if hasattr(value, "__len__") else None
    if isinstance(value, list | tuple) and len(value) <= _LISTED and all(isinstance(one, str | bool | int | float) for one in value):
        return list(map(_in_short, value))
    return type(value).__name__ if count is None else f"{count} entr{'y' if count == 1 else 'ies'}"
