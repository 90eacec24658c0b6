"""`Rearranged`: a packed tensor whose file has it in another order; `in_groups` puts one in rows of groups, `scattered` makes numbers of
one whose groups are scattered over its rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from iron_core import Format, PackedArray, PlaneQuant
from iron_core.declare.formats import format_of
from iron_core.errors import CheckpointError
from iron_core.side_by_side import side_by_side
from iron_lm.checkpoints.linear import nibbles

#: Bytes of integers that one thread moves at once.
_PIECE = 1 << 20


class Rearranged:
    """A tensor that is put in its format, a packed one or float32, where its numbers are asked for.

    parts: the arrays of the file that it is made of. how: everything else that decides its bytes.
    """

    def __init__(
        self, shape: tuple[int, ...], format: Format, parts: tuple[np.ndarray, ...], how: str, make: Callable[[], Any]
    ) -> None:
        self.shape, self.format, self.parts, self.how, self.packed = shape, format, parts, how, make
        self.ndim = len(shape)

    @property
    def nbytes(self) -> int:
        """Bytes of it in its format."""
        return self.format.nbytes(self.shape)

    def dequantize(self) -> np.ndarray:
        """float32 of the shape."""
        made = self.packed()
        return made.dequantize() if isinstance(made, PackedArray) else made  # type: ignore[no-any-return]

    def __getitem__(self, rows: Any) -> Any:
        return self.packed()[rows]


def stacked(name: str, arrays: list[Any], shape: tuple[int, ...]) -> Rearranged:
    """Several along a new first axis, the first of them called so. CheckpointError where they are of several formats."""
    formats = sorted({str(format_of(array)) for array in arrays})
    if len(formats) > 1 or not all(isinstance(array, Rearranged) for array in arrays):
        raise CheckpointError(f"{name} and other experts' are in several formats ({', '.join(formats)}). Legal: one for all of a layer.")

    def make() -> Any:
        each, format = [array.packed() for array in arrays], arrays[0].format
        return PackedArray(np.stack([one.data for one in each]), shape, format) if format.packed else np.stack(each)

    parts = tuple(part for array in arrays for part in array.parts)
    return Rearranged(shape, arrays[0].format, parts, arrays[0].how, make)


def in_groups(
    name: str,
    format: PlaneQuant,
    shape: tuple[int, ...],
    scales: np.ndarray,
    zeros: np.ndarray | None,
    rows: Callable[[int, slice], np.ndarray],
    unit: int = 1,
) -> PackedArray:
    """A tensor (..., N, K) of a format that `grouped` makes.

    scales, zeros: (..., N, groups), zeros None where the format has none. rows(m, part) gives the bytes, uint8 (n, K * bits / 8), of the
    integers of some rows of matrix m, the parts of whole units. CheckpointError, which names the tensor, for scales that are not finite.
    """
    _check_finite(name, scales)
    out = np.empty(format.stored(shape), np.uint8)
    groups = scales.shape[-1]
    blocks = out.reshape(-1, shape[-2], groups, format.block_bytes)
    width = format.planes[0].dtype.itemsize
    heads = [scales] if zeros is None else [scales, zeros]
    for i, head in enumerate(heads):
        stored = np.ascontiguousarray(head, format.planes[0].dtype).reshape(*blocks.shape[:3], 1)
        blocks[..., width * i : width * (i + 1)] = stored.view(np.uint8)
    bodies = blocks[..., width * len(heads) :]

    def turn(one: tuple[int, slice]) -> None:
        m, part = one
        bodies[m, part] = rows(m, part).reshape(part.stop - part.start, groups, -1)

    side_by_side(turn, _work(len(blocks), shape[-2], shape[-1] * format.planes[-1].bits // 8, unit))
    return PackedArray(out, shape, format)


def scattered(
    name: str,
    format: PlaneQuant,
    shape: tuple[int, ...],
    scales: np.ndarray,
    zeros: np.ndarray | None,
    rows: Callable[[int, slice], np.ndarray],
    order: np.ndarray,
    unit: int = 1,
) -> np.ndarray:
    """The numbers (..., N, K), float32, of one that would be in `format` if its groups lay one behind another. order: int32 (..., K), the
    group of each column; the rest as `in_groups` takes it."""
    _check_finite(name, scales)
    out = np.empty(shape, np.float32)
    flat, places = out.reshape(-1, *shape[-2:]), order.reshape(-1, shape[-1])
    shared = [np.asarray(x, np.float32).reshape(len(flat), shape[-2], -1) for x in (scales, zeros) if x is not None]

    def turn(one: tuple[int, slice]) -> None:
        m, part = one
        raw = rows(m, part)
        values = (nibbles(raw) if format.planes[-1].bits == 4 else raw.view(np.int8)).astype(np.float32) - np.float32(format.zero)
        if zeros is not None:
            values -= shared[1][m, part][:, places[m]]
        flat[m, part] = values * shared[0][m, part][:, places[m]]

    side_by_side(turn, _work(len(flat), shape[-2], 4 * shape[-1], unit))
    return out


def _check_finite(name: str, scales: np.ndarray) -> None:
    if not np.isfinite(scales).all():
        raise CheckpointError(f"{name} has scales that are NaN or infinite.")


def _work(matrices: int, rows: int, row_bytes: int, unit: int) -> list[tuple[int, slice]]:
    """Rows of matrices, each some whole units of one, for threads to share."""
    step = max(1, _PIECE // max(1, row_bytes) // unit) * unit
    return [(m, slice(at, min(at + step, rows))) for m in range(matrices) for at in range(0, rows, step)]
