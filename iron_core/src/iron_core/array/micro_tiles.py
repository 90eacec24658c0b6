"""Micro tiles: what a core multiplies at a time, the order in which it holds the tiles they make up, and how fast it is.

A core multiplies r x s of A by s x t of B, which gives r x t of C. It finds every micro tile's numbers together, so a tile of
R x C numbers is held as blocks, (R/r, C/c, r, c).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core.declare.formats.bfp16 import bfp16

#: Stack of mlir-aie's product (`linalg.mm`), in bytes.
MM_STACK = 0xD00
#: Its bytes of program memory: mlir-aie's cores of a matrix product hold 10 to 16 KB.
MM_PROGRAM = 10_000
#: (r, s, t), by architecture and what multiplies: its bfloat16, int8, or the bfp16 that bfloat16 is made.
MICRO_TILES = {
    ("AIE2", "bfloat16"): (4, 8, 4),
    ("AIE2", "int8"): (4, 8, 8),
    ("AIE2P", "bfloat16"): (4, 8, 8),
    ("AIE2P", "bfp16"): (8, 8, 8),
    ("AIE2P", "int8"): (8, 8, 8),
}
#: Multiplications a core does per cycle in that product, and where that was seen.
RATES = {
    ("AIE2", "bfloat16"): (95.4, "3.14 TOPS of 16 cores at 1.028 GHz, published bfloat16 best of npu1"),
    ("AIE2", "int8"): (205.5, "6.76 TOPS of 16 cores at 1.028 GHz, published int8 best of npu1"),
    ("AIE2P", "bfloat16"): (13.9, "1.6 TFLOPS of 32 cores at 1.8 GHz, mlir-aie's 4096^3 in tiles of 64 x 88 x 64, native bfloat16"),
    ("AIE2P", "bfp16"): (41.7, "4.8 TFLOPS of 32 cores at 1.8 GHz, mlir-aie's 8192 x 4224 x 4096, bfloat16 made bfp16"),
    ("AIE2P", "int8"): (330.3, "38.05 TOPS of 32 cores at 1.8 GHz, published int8 best of npu2"),
}

#: (size, stride) pairs, outermost first.
Dims = tuple[tuple[int, int], ...]


def blocked(tile: Any, rows: int, columns: int) -> np.ndarray:
    """A matrix, flat, block of rows x columns by block."""
    high, wide = tile.shape
    return np.ascontiguousarray(tile.reshape(high // rows, rows, wide // columns, columns).swapaxes(1, 2)).reshape(-1)


def unblocked(flat: Any, shape: tuple[int, int], rows: int, columns: int) -> np.ndarray:
    """The matrix of this shape that `blocked` made flat."""
    high, wide = shape
    blocks = np.asarray(flat).reshape(high // rows, wide // columns, rows, columns)
    return np.ascontiguousarray(blocks.swapaxes(1, 2)).reshape(shape)


def block_dims(shape: tuple[int, int], rows: int, columns: int) -> Dims:
    """How a DMA reads a row-major matrix block by block."""
    high, wide = shape
    return ((high // rows, rows * wide), (wide // columns, columns), (rows, wide), (columns, 1))


def row_dims(shape: tuple[int, int], rows: int, columns: int) -> Dims:
    """How a DMA reads a matrix held in blocks row by row."""
    high, wide = shape
    return ((high // rows, rows * wide), (rows, columns), (wide // columns, rows * columns), (columns, 1))


def product(a: Any, b: Any, mode: str = "bfloat16") -> np.ndarray:
    """a @ b in float32, of integers exactly. What tile references and `composed()` share: its bits depend on shapes and layout."""
    if mode == "int8":  # float64 has a fast product, and holds these sums
        return np.matmul(np.asarray(a, np.float64), np.asarray(b, np.float64))
    if mode == "bfp16":
        a, b = bfp16(a, 1), bfp16(b, 0)
    return np.matmul(np.ascontiguousarray(a, np.float32), np.ascontiguousarray(b, np.float32))
