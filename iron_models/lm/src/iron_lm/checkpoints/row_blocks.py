"""`row_blocks`: a tensor in which every row stands by itself, to be gathered."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import attrs
import numpy as np

from iron_core import Dense, Format, PlaneQuant
from iron_lm.checkpoints.widening import dense, is_gathered, repacked


def row_format(array: Any) -> Format | None:
    """The format in which a stored tensor has its numbers in rows that stand by themselves: blocks of one row with the same integers,
    scales and minima, or float32 where its planes do not say these. None where they stand so already."""
    if is_gathered(array):
        return None
    return (_of_one_row(array.format) if array.ndim == 2 else None) or Dense(np.float32)


def row_blocks(array: Any) -> Any:
    """A stored tensor in its `row_format`; the array itself where it has none."""
    format: Any = row_format(array)
    return array if format is None else repacked(array, format) if format.packed else dense(array, format.dtype)


@cache
def _of_one_row(format: Format) -> PlaneQuant | None:
    """The format that has a format's numbers in blocks of one row; None where planes do not say them, or of more rows than one."""
    planes = format.planes
    if not planes or any(plane.apart or plane.group[0] != 1 or not plane.group[1] for plane in planes):
        return None
    columns = math.lcm(*(plane.group[1] for plane in planes))
    if any(columns // plane.group[1] * plane.bits % 8 for plane in planes):
        return None
    kept = tuple(attrs.evolve(plane, rows=(), columns=(), order=()) for plane in planes)
    name = f"{format.name}_rows"
    return PlaneQuant(name, (1, columns), kept, runs_as=name)
