"""What the tests of resizes share: pictures resized by the tables of `ResampleTaps`, and by `Resample`."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_ops_aie import Resample, ResampleTaps


def by_table(numbers: np.ndarray, outputs: int, **fields: Any) -> np.ndarray:
    """uint8 (inputs, ...) to (outputs, ...), each the weighted sum that its slot says, read word by word."""
    table = ResampleTaps(in_size=len(numbers), out_size=outputs, **fields).reference()
    made = []
    for precision, window, first, held, *rest in table.tolist():
        assert first == len(made) or not held
        words = 2 + (window + 1) // 2
        for slot in range(held):
            start, count, *packed = rest[slot * words : (slot + 1) * words]
            halves = np.array(packed, np.int32).view("<i2")[:count].astype(int)
            sums = sum(w * numbers[start + i].astype(int) for i, w in enumerate(halves.tolist()))
            made.append(np.clip((sums + (1 << precision >> 1)) >> precision, 0, 255).astype(np.uint8))
    return np.stack(made)


def resized(picture: np.ndarray, height: int, width: int, **fields: Any) -> np.ndarray:
    """A picture (height, width, 3) in another size: its rows first, then its columns."""
    across = by_table(picture.swapaxes(0, 1), width, **fields).swapaxes(0, 1)
    return by_table(across, height, **fields)


def padded(picture: np.ndarray, row_bytes: int = 0) -> np.ndarray:
    """A picture as `Resample` takes it: rows of whole slices, here with noise behind the pixels."""
    height, width, _ = picture.shape
    row_bytes = row_bytes or -(-width * 3 // 4096) * 4096
    image = np.random.default_rng(width).integers(0, 256, (height, row_bytes)).astype(np.uint8)
    image[:, : width * 3] = picture.reshape(height, -1)
    return image


def unpatched(op: Resample, patches: np.ndarray) -> np.ndarray:
    """The picture (out_height, out_width, 3) of fractions that these patches are."""
    down, across = op.out_height // 16, op.out_width // 16
    tiles = patches[: down * op.pad].reshape(down, op.pad, 16, 16, 3)[:, :across]
    return tiles.swapaxes(1, 2).reshape(op.out_height, op.out_width, 3)
