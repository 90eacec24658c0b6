"""`Rearranged`: a packed tensor whose file has it in another order; `in_groups` puts one in rows of groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from iron_core import Format, PackedArray, PlaneQuant
from iron_core.declare.formats import format_of
from iron_core.errors import CheckpointError
from iron_core.side_by_side import side_by_side

#: Bytes of integers that one thread moves at once.
_PIECE = 1 << 20


class Rearranged:
    """A tensor of a packed format, put in that where its numbers are asked for.

    parts: the arrays of the file that it is made of. how: everything else that decides its bytes.
    """

    def __init__(
        self, shape: tuple[int, ...], format: Format, parts: tuple[np.ndarray, ...], how: str, make: Callable[[], PackedArray]
    ) -> None:
        self.shape, self.format, self.parts, self.how, self.packed = shape, format, parts, how, make
        self.ndim = len(shape)

    @property
    def nbytes(self) -> int:
        """Bytes of it in its format."""
        return self.format.nbytes(self.shape)

    def dequantize(self) -> np.ndarray:
        """float32 of the shape."""
        return self.packed().dequantize()

    def __getitem__(self, rows: Any) -> PackedArray:
        return self.packed()[rows]


def stacked(arrays: list[Any], shape: tuple[int, ...]) -> Rearranged:
    """Several along a new first axis. CheckpointError where they are of several formats."""
    formats = sorted({str(format_of(array)) for array in arrays})
    if len(formats) > 1 or not all(isinstance(array, Rearranged) for array in arrays):
        raise CheckpointError(f"experts are packed in several formats ({', '.join(formats)}). Legal: one for all of a layer.")

    def make() -> PackedArray:
        return PackedArray(np.stack([array.packed().data for array in arrays]), shape, arrays[0].format)

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
    if not np.isfinite(scales).all():
        raise CheckpointError(f"{name} has scales that are NaN or infinite.")
    out = np.empty(format.stored(shape), np.uint8)
    groups, bits = scales.shape[-1], format.planes[-1].bits
    blocks = out.reshape(-1, shape[-2], groups, format.block_bytes)
    width = format.planes[0].dtype.itemsize
    heads = [scales] if zeros is None else [scales, zeros]
    for i, head in enumerate(heads):
        stored = np.ascontiguousarray(head, format.planes[0].dtype).reshape(*blocks.shape[:3], 1)
        blocks[..., width * i : width * (i + 1)] = stored.view(np.uint8)
    bodies = blocks[..., width * len(heads) :]
    step = max(1, _PIECE // max(1, shape[-1] * bits // 8) // unit) * unit
    work = [(m, slice(at, min(at + step, shape[-2]))) for m in range(len(blocks)) for at in range(0, shape[-2], step)]

    def turn(one: tuple[int, slice]) -> None:
        m, part = one
        bodies[m, part] = rows(m, part).reshape(part.stop - part.start, groups, -1)

    side_by_side(turn, work)
    return PackedArray(out, shape, format)
