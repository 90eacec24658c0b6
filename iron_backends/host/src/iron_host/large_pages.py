"""Large pages for memory that fills up: where nearly all of 2 MiB was touched, its small pages become one large one.

A cache of keys and values is read whole for every token, and where each of its pages lies is looked up again. Large pages from the
start would take memory that a short conversation never touches.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from functools import cache
from typing import Any

import numpy as np

from iron_host.anonymous import address

#: Bytes of a large page, and the part of it that must have been touched: a seventh more memory than was is taken at most.
LARGE, TOUCHED = 1 << 21, 7 / 8
#: Of madvise, since Linux 6.1: make these pages large ones now.
_COLLAPSE = 25


@cache
def _mincore() -> Any:
    """The system's function that says which pages are there; None where there is none."""
    if not sys.platform.startswith("linux"):
        return None
    function = ctypes.CDLL(None).mincore
    function.argtypes, function.restype = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p), ctypes.c_int
    return function


class Filling:
    """Memory of `anonymous` that fills up. `large`: for each 2 MiB of it on a border of as many, whether they are one page."""

    def __init__(self, whole: np.ndarray) -> None:
        base = whole.base.obj if isinstance(whole.base, memoryview) else whole.base
        self._map = base if isinstance(base, mmap.mmap) and _mincore() is not None else None
        self._first = -address(whole) % LARGE
        self._address = address(whole) + self._first
        self.large = np.zeros(max(0, whole.size - self._first) // LARGE, bool)

    def settle(self) -> None:
        """Make large pages where nearly all was touched; nothing where the system has none."""
        if self._map is None or self.large.all():
            return
        there = np.zeros((self.large.size, LARGE // mmap.PAGESIZE), np.uint8)
        if _mincore()(self._address, self.large.size * LARGE, address(there)):
            self._map = None
            return
        full = ((there & 1).sum(1) >= TOUCHED * there.shape[1]) & ~self.large
        # Neighbours together, for every call waits until all processors have been asked.
        borders = np.flatnonzero(np.diff(full, prepend=False, append=False))
        for begin, end in borders.reshape(-1, 2).tolist():
            try:
                self._map.madvise(_COLLAPSE, self._first + begin * LARGE, (end - begin) * LARGE)
            except OSError:  # the system has none, or not now
                self._map = None
                return
            self.large[begin:end] = True
