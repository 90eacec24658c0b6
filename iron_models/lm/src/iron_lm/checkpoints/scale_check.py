"""Scales of blocks that are no numbers: looked for once in a file, which is remembered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import numpy as np

from iron_core import Format, PackedArray, bfloat16
from iron_core.cache.entry import About
from iron_core.cache.keys import FileIdentity, digest
from iron_core.cache.store import Cache, optional
from iron_lm.checkpoints.identity import origin

#: Bytes of blocks looked at before the rest is taken on trust: a start has a second, and logits are looked at too.
MOST = 2 << 30
#: Scales looked at at once: temporaries stay below a few MB.
PIECE = 1 << 18
#: Bytes of blocks from which on it is remembered that they were looked at.
WORTH_KEEPING = 4 << 20
_FILE = "finite"


#: The bits of a float's exponent, all of which are 1 where it is NaN or infinite.
_EXPONENTS = {np.dtype(np.float16): np.uint16(0x7C00), bfloat16: np.uint16(0x7F80)}


class ScaleCheck:
    """Looks for block scales (and minima) that are NaN or infinite, up to so many bytes of blocks."""

    def __init__(self, most: int = MOST) -> None:
        self.left = most

    def __call__(self, array: Any) -> bool:
        """Is every scale looked at a finite number?"""
        if not isinstance(array, PackedArray) or array.nbytes > self.left:
            return True
        self.left -= array.nbytes
        blocks = array.data.reshape(-1, array.format.block_bytes)
        for first, count, dtype in _runs(array.format):
            step, ones = PIECE // count + 1, _EXPONENTS[dtype]
            for start in range(0, len(blocks), step):
                bits = blocks[start : start + step, first : first + 2 * count].view("<u2")
                if ((bits & ones) == ones).any():
                    return False
        return True


@cache
def _runs(format: Format) -> tuple[tuple[int, int, np.dtype], ...]:
    """First byte of a block, count and dtype of the floats of 16 bits in it, those behind one another together."""
    found: list[tuple[int, int, np.dtype]] = []
    for byte, dtype in format.scale_offsets:
        if found and found[-1][0] + 2 * found[-1][1] == byte and found[-1][2] == dtype:
            found[-1] = (found[-1][0], found[-1][1] + 1, dtype)
        elif dtype in _EXPONENTS:
            found.append((byte, 1, dtype))
    return tuple(found)


class LookedAt:
    """Whether an earlier process has looked at these tensors of these very files, by the same reader, and found numbers alone."""

    def __init__(self, tensors: Mapping[str, Any], names: Iterable[str], reader: str) -> None:
        packed = [(name, tensors[name][2]) for name in sorted(names) if name in tensors]
        packed = [(name, array) for name, array in packed if isinstance(array, PackedArray)]
        files = {origin(array.data) for _, array in packed if array.nbytes}
        self._about: FileIdentity | None = None
        self.before = False
        if None in files or sum(array.nbytes for _, array in packed) < WORTH_KEEPING:
            return
        known = sorted((file for file in files if file is not None), key=repr)
        self._about, self._key = known[0], digest("finite scales", MOST, reader, known, [name for name, _ in packed])
        with optional():
            self.before = Cache("weights").read(self._key, _FILE) is not None

    def keep(self) -> None:
        """Remember that it was done, unless the file was written to meanwhile."""
        if self._about is not None and not self.before and not self._about.written_to():
            with optional():
                Cache("weights").keep(self._key, _FILE, b"", about=About("finite scales", self._about.path))
