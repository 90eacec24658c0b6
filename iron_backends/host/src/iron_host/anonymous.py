"""Anonymous memory: zeros of this process, and where an array's bytes are."""

from __future__ import annotations

import mmap

import numpy as np

from iron_core.errors import OutOfMemory
from iron_core.image.arena import guard_bytes
from iron_host.guard import room


def anonymous(nbytes: int, what: str = "memory") -> np.ndarray:
    """`nbytes` of zeros as uint8, page aligned; no page is taken before it is touched, and a forked child has its own.

    OutOfMemory, which says that it was for `what`. In a guarded process (see `iron_host.guard`) it lies between gaps.
    """
    # Python's default is shared with forked children.
    flags = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_ANONYMOUS") else {}
    try:
        if gap := guard_bytes():
            return room(nbytes, gap)
        return np.frombuffer(mmap.mmap(-1, max(nbytes, 64), **flags), np.uint8)
    except (OSError, OverflowError, ValueError, MemoryError) as error:
        raise OutOfMemory(f"no memory for {what} ({nbytes} bytes): {error}", what, nbytes) from None


def address(array: np.ndarray) -> int:
    """Where an array's first byte is."""
    return array.__array_interface__["data"][0]
