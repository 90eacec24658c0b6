"""What a stored tensor runs as, and turning one into it, some rows at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from iron_core import Dense, Format, PackedArray, round_to
from iron_core.declare.formats import Quantized, as_format, format_of
from iron_core.side_by_side import side_by_side
from iron_lm.checkpoints.rearranged import Rearranged

#: Numbers turned at once by one thread: temporaries stay below a few MB.
_PIECE = 1 << 18


class Merged:
    """A dense tensor whose parts lie in several files along `axis`; put together where its numbers are asked for."""

    def __init__(self, parts: list[np.ndarray], axis: int) -> None:
        first = parts[0].shape
        self.parts, self.axis, self.dtype = parts, axis, parts[0].dtype
        self.shape = tuple(n * len(parts) if i == axis else n for i, n in enumerate(first))
        self.ndim = len(first)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        whole = np.concatenate(self.parts, self.axis)
        return whole if dtype is None else whole.astype(dtype)

    def __getitem__(self, rows: Any) -> np.ndarray:
        return np.asarray(self)[rows] if self.axis == 0 else np.concatenate([part[rows] for part in self.parts], self.axis)


def whole(array: Any) -> Any:
    """A tensor that is put together, or in order, where its numbers are asked for, as it is then; any other as it is."""
    return np.asarray(array) if isinstance(array, Merged) else array.packed() if isinstance(array, Rearranged) else array


def stored_format(array: Any) -> Format:
    """The format a tensor is stored in."""
    return Dense(array.dtype) if isinstance(array, Merged) else format_of(array)


def runs_as(format: Format) -> Format:
    """The format the operators are given for a tensor stored in `format`: what that one says. Another holds the same numbers."""
    return format if format.runs_as == format.name else as_format(format.runs_as)


def dense(array: Any, dtype: Any) -> np.ndarray:
    """A weight as dense numbers of `dtype`, rounded once; the array itself where it is that already."""
    array = whole(array)
    packed = isinstance(array, PackedArray)
    if not packed and array.dtype == dtype:
        return array  # type: ignore[no-any-return]
    if not is_gathered(array) and array.ndim > 2:  # matrices that are no rows below one another
        return np.stack([dense(array[i], dtype) for i in range(len(array.data))])
    out = np.empty(array.shape, dtype)
    columns = array.shape[-1] if array.ndim else 1
    by_rows = is_gathered(array)
    rows = array if not by_rows else array.reshape(-1, columns) if array.ndim else np.reshape(array, (1, 1))
    flat = out.reshape(-1, columns)

    def turn(part: slice) -> None:
        piece = rows[part]
        flat[part] = round_to(piece.dequantize() if isinstance(piece, PackedArray) else piece, out.dtype)

    in_pieces(turn, len(flat), columns, 1 if by_rows else array.format.unit(array.shape)[0])
    return out


def is_gathered(array: Any) -> bool:
    """Can the rows of a stored tensor be taken one by one?"""
    return not isinstance(array, PackedArray) or array.format.by_rows


def repacked(array: PackedArray, format: Quantized) -> PackedArray:
    """A tensor of integers with scales in another format that has them too, and room for its integers: the same numbers, bit for
    bit. The other's rows stand by themselves."""
    out = np.empty(format.stored(array.shape), np.uint8)
    columns, target = array.shape[-1], out.reshape(-1, out.shape[-1])
    source: Any = array.format
    rows = array.reshape(-1, columns) if source.by_rows else array
    moved = np.uint8((source.zero - format.zero) % 256)

    def turn(part: slice) -> None:
        piece = rows[part]
        numbers = {plane.role: source.numbers(plane, piece.data, piece.shape) for plane in source.planes if plane.role != "values"}
        ints = source.integers(piece.data, piece.shape) - moved  # two's complement of what is below zero
        target[part] = format.assembled(piece.shape, values=ints, **numbers).data

    in_pieces(turn, len(target), columns, source.unit(array.shape)[0])
    return PackedArray(out, array.shape, format)


def runnable(array: Any) -> Any:
    """A stored tensor in the format it runs as; the array itself where it is that already."""
    array = whole(array)
    stored = format_of(array)
    wanted: Any = runs_as(stored)
    if wanted == stored:
        return array
    return repacked(array, wanted) if wanted.packed else dense(array, wanted.dtype)


def as_blocks(array: Any, format: Format) -> PackedArray:
    """A matrix in any format as blocks of a row, rounded."""
    array = whole(array)
    out = np.empty(format.stored(array.shape), np.uint8)

    def turn(part: slice) -> None:
        out[part] = format.quantize(dense(array[part], np.float32)).data

    (rows, columns), stored = array.shape, stored_format(array)
    in_pieces(turn, rows, columns, 1 if stored.by_rows else stored.unit(array.shape)[0])
    return PackedArray(out, array.shape, format)


def in_pieces(turn: Callable[[slice], None], rows: int, columns: int, unit: int = 1) -> None:
    """Call `turn` for runs of rows, each of whole units, that cover all of them, on every CPU."""
    step = max(1, _PIECE // max(1, columns) // unit) * unit
    parts = [slice(at, min(rows, at + step)) for at in range(0, rows, step)]
    if len(parts) < 2:
        for part in parts:
            turn(part)
        return
    side_by_side(turn, parts)  # numpy computes without the interpreter's lock
