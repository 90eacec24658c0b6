"""Tensors as Q4NX stores them: matrices in chunks of 4 bits, others in bfloat16, some rows at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from iron_core import Q4NX, Format, PackedArray, bfloat16, round_to
from iron_core.errors import CheckpointError
from iron_core.side_by_side import side_by_side
from iron_lm.checkpoints.scale_check import ScaleCheck
from iron_lm.checkpoints.widening import whole

#: Numbers made at once by one thread: what that takes stays below some tens of MB.
_PIECE = 1 << 20
_BITS = 4
_UNHELD = "has numbers that are NaN, infinite or too large for bfloat16."


def chunks(rows: Any) -> np.ndarray:
    """uint8: some rows of a matrix, a multiple of 32, as chunks.

    Integers of 4 bits with a scale (and a minimum) for every 32 stay as they are, and scales and minima are rounded to bfloat16;
    Q4_0's zero point becomes a minimum. Any other numbers are rounded as `Q4NX.quantize` does. CheckpointError where a scale or a
    minimum is none that bfloat16 holds.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # what comes of it is looked at
        found = _chunked(rows)
    if not ScaleCheck(found.nbytes)(found):
        raise CheckpointError(_UNHELD)
    return found.data


def _chunked(rows: Any) -> PackedArray:
    lowest = _lowest(rows.format) if isinstance(rows, PackedArray) else None
    if lowest is None:
        return Q4NX.quantize(_numbers(rows))
    integers, scales, minima = rows.format.fields(rows.data, rows.shape)
    least = scales * np.float32(lowest)
    return Q4NX.assembled(rows.shape, values=integers - lowest, scales=scales, minima=least if minima is None else minima + least)


def narrow(rows: Any, scale: float = 1.0) -> np.ndarray:
    """uint8: numbers times `scale` in bfloat16, rounded once. CheckpointError for one that bfloat16 does not hold."""
    numbers = _numbers(rows)
    with np.errstate(over="ignore"):
        found = np.ascontiguousarray(round_to(numbers if scale == 1 else numbers * np.float32(scale), bfloat16))
    if not np.isfinite(found).all():
        raise CheckpointError(_UNHELD)
    return found.reshape(-1).view(np.uint8)


def made(array: Any, order: np.ndarray | None, turn: Callable[[Any], np.ndarray]) -> Iterator[np.ndarray]:
    """What `turn` makes of a tensor's rows, those of `order` or all, on a thread for each CPU; of a vector, and of a matrix that is
    stored as a whole, at once."""
    array = whole(array)
    if isinstance(array, PackedArray) and order is not None and not array.format.by_rows:
        array = array.dequantize()
    for some in _parts(array):
        yield from side_by_side(lambda part: turn(array[part if order is None else order[part]]), some)


def _parts(array: Any) -> Iterator[list[slice]]:
    """Its rows, some for each CPU at a time."""
    height, count = Q4NX.block[0], array.shape[0]
    whole = len(array.shape) == 1 or (isinstance(array, PackedArray) and height % array.format.unit(array.shape)[0] != 0)
    step = count if whole else max(height, _PIECE // array.shape[-1] // height * height)
    parts = [slice(at, min(at + step, count)) for at in range(0, count, step)]
    threads = os.cpu_count() or 1
    for at in range(0, len(parts), threads):
        yield parts[at : at + threads]


def _lowest(format: Format) -> int | None:
    """The lowest of the integers that a tensor of this format is made of, where those are Q4NX's: 4 bits, a scale for every 32."""
    planes = {plane.role: plane for plane in format.planes}
    values = planes.get("values")
    if values is None or format.group != Q4NX.group or values.bits != _BITS or len(planes) != len(format.planes):
        return None
    if "zeros" in planes and planes["zeros"].integer:
        return None
    return -(1 << (_BITS - 1)) if values.signed else -values.zero


def _numbers(rows: Any) -> np.ndarray:
    """Their numbers in float32; CheckpointError where one is none."""
    found = np.asarray(rows.dequantize() if isinstance(rows, PackedArray) else rows).astype(np.float32)
    if not np.isfinite(found).all():
        raise CheckpointError(_UNHELD)
    return found
