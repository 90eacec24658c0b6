"""The header of a safetensors container: which tensors there are, and where."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import attrs

from iron_core.errors import CheckpointError
from iron_lm.checkpoints.bounded_json import MOST_BYTES, parse
from iron_lm.checkpoints.mapped import MappedFile

_MOST_AXES = 16
#: What a file that is written begins its tensors at a multiple of.
_ALIGNMENT = 64


@attrs.frozen
class Entry:
    """A tensor's name, dtype and shape as the header has them; it lies at bytes `begin` to `end` of the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@attrs.frozen
class Header:
    """`entries` in the order of their places, with no two over each other; `metadata`: what `__metadata__` says; `digest` of the
    header's bytes."""

    entries: tuple[Entry, ...]
    metadata: dict[str, Any]
    digest: str


def read_header(file: MappedFile, lenient: bool = False) -> Header:
    """The header of an open file; CheckpointError if it is damaged. lenient: what does not describe a tensor is skipped."""
    path = file.path
    (length,) = struct.unpack("<Q", file.read(0, 8, "the header's length"))
    if length > MOST_BYTES:
        raise CheckpointError(f"{path}: the header claims {length} bytes; legal: up to {MOST_BYTES}.")
    raw = file.read(8, length, "the header")
    try:
        header = parse(raw)
        metadata = header.pop("__metadata__", None)
        if lenient:
            header = {name: entry for name, entry in header.items() if isinstance(entry, dict) and "data_offsets" in entry}
        found = [(n, e["dtype"], tuple(e["shape"]), e["data_offsets"]) for n, e in header.items()]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        why = f"{type(error).__name__}: {error}"[:80]
        shown = why if why.isprintable() else repr(why)
        raise CheckpointError(f"{path}: the header is not what safetensors says it is ({shown}).") from None
    for name, dtype, shape, offsets in found:
        if not name.isprintable():
            raise CheckpointError(f"{path}: {name[:40]!r} names no tensor; the header is damaged.")
        if not isinstance(dtype, str):
            raise CheckpointError(f"{path}: tensor {name} is {str(dtype)[:40]!r}. Legal: F32, or another name.")
        places = offsets if isinstance(offsets, list) else ()
        if len(shape) > _MOST_AXES or len(places) != 2 or not all(isinstance(n, int) and 0 <= n < 1 << 48 for n in (*shape, *places)):
            raise CheckpointError(f"{path}: tensor {name} has shape {str(shape)[:60]} at {str(offsets)[:60]}, which no tensor has.")
    start = 8 + length
    entries = [Entry(n, dtype, shape, start + at[0], start + at[1]) for n, dtype, shape, at in sorted(found, key=lambda one: one[3])]
    for before, entry in pairwise(entries):
        if entry.begin < before.end:
            raise CheckpointError(f"{path}: tensor {entry.name} overlaps the one before it.")
    return Header(tuple(entries), metadata if isinstance(metadata, dict) else {}, hashlib.sha256(raw).hexdigest())


def written(tensors: Iterable[tuple[str, str, Sequence[int], int]], metadata: dict[str, Any]) -> bytes:
    """The header of a file of these tensors (name, dtype, shape, bytes), one behind the other; `__metadata__` where there is any."""
    entries: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    at = 0
    for name, dtype, shape, nbytes in tensors:
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + nbytes]}
        at += nbytes
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    return struct.pack("<Q", len(text)) + text
