"""A GGUF in which matrices of some roles are Q4_1's, and everything else is as it was.

GPTQ's names cannot say what a GGUF's tensors are (the order of heads' rows, norms that are whole, a vocabulary), so a GGUF stays one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

from iron_core import Q4_1
from iron_core.side_by_side import side_by_side
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.checkpoints.gguf import FORMATS, Layout
from iron_lm.conversion.output import Output, Piece, Weights
from iron_lm.conversion.roles import block_of, chosen
from iron_lm.conversion.rounding import rounded

_NUMBER = next(number for number, format in FORMATS.items() if format is Q4_1)
#: Numbers rounded at once by one thread, threads' shares made before they are written, and bytes that are copied at once.
_PIECE, _SHARES, _COPIED = 1 << 20, 8, 1 << 24


def output(checkpoint: Checkpoint, roles: Iterable[str], block: int | None) -> Output:
    """The folder that has the GGUF, of as many files as it was, with the matrices of these roles in Q4_1. UsageError for another block
    than its 32 numbers."""
    found = chosen(checkpoint, roles)
    block_of(block, {name: int(checkpoint.tensors[name][0][-1]) for name in found}, (Q4_1.group,))
    weights = [_file(layout, {name: checkpoint.tensors[name][2] for name in found}) for layout in checkpoint.file.layouts]
    first, *more = weights
    return Output({}, first.name, first.header, first.pieces, more)


def _file(layout: Layout, matrices: dict[str, Any]) -> Weights:
    """A file as it is written: its metadata byte for byte, its tensors in the order in which they lie."""
    align, at = layout.alignment, 0
    places, pieces = {}, []
    for place in sorted(layout.places, key=lambda one: one.begin):
        array = matrices.get(place.name)
        size = place.end - place.begin if array is None else Q4_1.nbytes(place.shape)
        fill = -size % align
        parts = partial(_copied, layout, place) if array is None else partial(_blocks, f"{layout.file.path}: {place.name}", array)
        pieces.append(Piece(place.name, size + fill, partial(_filled, parts, fill)))
        places[place.name] = at, place.kind if array is None else _NUMBER
        at += size + fill
    header = layout.file.read(0, layout.pairs_end, "the metadata")
    for place in layout.places:
        name, (offset, kind) = place.name.encode(), places[place.name]
        header += struct.pack("<Q", len(name)) + name + struct.pack("<I", len(place.shape))
        header += struct.pack(f"<{len(place.shape)}Q", *place.shape[::-1]) + struct.pack("<IQ", kind, offset)
    return Weights(layout.file.path.name, header + bytes(-len(header) % align), pieces)


def _blocks(name: str, array: np.ndarray) -> Iterator[np.ndarray]:
    columns = array.shape[-1]
    rows = array.reshape(-1, columns)
    step = max(1, _PIECE // columns)
    for at in range(0, len(rows), step * _SHARES):
        shares = range(at, min(at + step * _SHARES, len(rows)), step)
        yield from side_by_side(lambda one: np.ascontiguousarray(rounded(Q4_1, name, rows[one : one + step]).data).reshape(-1), shares)


def _copied(layout: Layout, place: Any) -> Iterator[np.ndarray]:
    for at in range(place.begin, place.end, _COPIED):
        yield layout.file.view(at, min(_COPIED, place.end - at), f"tensor {place.name}")


def _filled(parts: Any, fill: int) -> Iterator[np.ndarray]:
    yield from parts()
    if fill:
        yield np.zeros(fill, np.uint8)
