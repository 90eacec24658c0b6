"""The kernels of arrays that reorder elements, with what each promises. mlir-aie hosts them in `aie.iron.kernels`."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import In, Kernel, KernelContract, ObjectType, Out, Tolerance, bfloat16

#: Sides of the squares that datamovement.transpose turns, the larger first, and what both sides of its tile are more than.
SQUARES = {8: 16, 4: 4}
#: What it is compiled for.
TURNED = (bfloat16, np.dtype(np.uint8), np.dtype(np.uint32))
#: Bytes of the strip of squares that it turns at once.
_STRIP = 128


def widths(square: int, itemsize: int, most: int) -> range:
    """Lengths of a tile's rows that `transpose` takes, up to `most`: whole strips of squares."""
    strip = max(square, _STRIP // (square * itemsize))
    return range((SQUARES[square] // strip + 1) * strip, most + 1, strip)


def heights(square: int, most: int) -> range:
    """Numbers of rows of a tile that `transpose` takes, up to `most`."""
    return range(SQUARES[square] + square, most + 1, square)


def transpose(wide: int, high: int, square: int, dtype: Any) -> Kernel:
    """y = x, (high, wide), with every square of `square` elements a side transposed where it stands."""

    def reference(x: Any) -> np.ndarray:
        squares = np.reshape(x, (high // square, square, wide // square, square))
        return squares.transpose(0, 3, 2, 1).reshape(-1)

    contract = KernelContract(roles=(In, Out), reference=reference, tolerance=Tolerance(exact=True))
    tile = ObjectType.of((high, wide), dtype)
    names = dict(dim_m=wide, dim_n=high, subtile=square, dtype=dtype)
    return Kernel.factory("datamovement.transpose", (tile, tile), contract, symbol=f"transpose_{square}x{square}", **names)
