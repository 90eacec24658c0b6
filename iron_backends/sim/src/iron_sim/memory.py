"""Memory with poison: numbers that nobody wrote are marked, and are NaN where their dtype has one."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core.declare.formats import bfloat16
from iron_core.declare.objects import ObjectType
from iron_core.declare.rounding import floored, round_to


class Mem:
    """Numbers of one dtype, flat, and which of them are poison."""

    __slots__ = ("data", "mask")

    def __init__(self, data: np.ndarray, mask: np.ndarray) -> None:
        self.data = data
        self.mask = mask

    @classmethod
    def fresh(cls, type: ObjectType) -> Mem:
        """All poison."""
        raw = np.full(type.nbytes, 0xFF, np.uint8)
        return cls(raw.view(type.dtype), np.ones(type.elements, bool))

    @classmethod
    def holding(cls, type: ObjectType, values: Any) -> Mem:
        """Starting with these numbers."""
        mem = cls.fresh(type)
        mem.data[:] = np.asarray(values).reshape(-1)
        mem.mask[:] = False
        return mem

    def part(self, start: int, count: int) -> Mem:
        """Numbers `start` to `start + count`, sharing memory."""
        return Mem(self.data[start : start + count], self.mask[start : start + count])


def store(into: np.ndarray, values: Any, mode: str) -> None:
    """Round numbers into memory as a core in this rounding mode does. ValueError for more or fewer than it holds."""
    flat = np.asarray(values).reshape(-1)
    if flat.size != into.size:
        raise ValueError(f"{flat.size} numbers for a memory of {into.size}")
    if into.dtype == bfloat16 and flat.dtype != bfloat16:
        if mode == "floor":
            into[:] = floored(flat.astype(np.float32))
        elif flat.dtype == np.float32:
            into[:] = flat  # ml_dtypes rounds to nearest even
        else:
            into[:] = round_to(flat, bfloat16)
    else:
        into[:] = flat if flat.dtype == into.dtype else round_to(flat, into.dtype)
