"""Guard gaps: bytes beside buffers that no kernel may touch, watched by AddressSanitizer.

`IRON_GUARD=BYTES` leaves gaps of that many bytes around every buffer of an arena (see `iron_core.image.arena`) and around
every allocation here. A process that runs with AddressSanitizer (`nox -s sanitize`) marks them, so that a kernel that reads
or writes one element too many stops it; in any other process they are only left.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np


@cache
def _marks() -> tuple[Any, Any] | None:
    """AddressSanitizer's functions to mark bytes and to take the mark away, (address, bytes); None without it."""
    process = ctypes.CDLL(None)
    try:
        found = process.__asan_poison_memory_region, process.__asan_unpoison_memory_region
    except AttributeError:
        return None
    for function in found:
        function.argtypes, function.restype = (ctypes.c_void_p, ctypes.c_size_t), None
    return found


def room(nbytes: int, gap: int) -> np.ndarray:
    """`nbytes` of zeros as uint8, on a 64-byte border, between two gaps that are marked for good.

    Of the allocator, not mapped: it takes the marks away when it hands the bytes out again.
    """
    raw = np.zeros(max(nbytes + 2 * gap + 64, 1 << 12), np.uint8)  # numpy keeps small pieces without asking the allocator
    start = gap + -(raw.ctypes.data + gap) % 64
    fence(raw, [(start, nbytes)])
    return raw[start : start + nbytes]


def fence(memory: np.ndarray, kept: Iterable[tuple[int, int]]) -> None:
    """Mark all of `memory` (uint8) but the parts `kept`, (offset, bytes)."""
    marks = _marks()
    if marks is None or not memory.size:
        return
    mark, clear = marks
    mark(memory.ctypes.data, memory.size)
    for offset, nbytes in kept:
        clear(memory.ctypes.data + offset, nbytes)
