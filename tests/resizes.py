"""What the tests of resizes share: pictures resized by the tables of `ResampleTaps`, and by `Resample`."""

from __future__ import annotations

import hashlib
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


#: (height, width, tokens at most) of images that towers take, odd and even, tiny and large, as wide or as high as they come.
IMAGES = (
    (480, 640, 70), (224, 224, 280), (1080, 1920, 70), (1, 1, 70), (1, 10000, 70), (10000, 1, 70), (37, 53, 70), (53, 37, 70), (16, 16, 70),
    (48, 48, 140), (47, 49, 70), (3, 500, 70), (500, 3, 70), (384, 384, 70),
    (336, 432, 70), (288, 528, 70), (101, 997, 70), (768, 768, 280), (672, 912, 280),
    (2, 3, 70), (1999, 2003, 70), (640, 427, 140), (333, 500, 140), (97, 31, 70), (120, 90, 70), (640, 480, 560),
    (300, 301, 1120), (7, 5, 70), (1200, 1600, 70), (65, 63, 70),
)  # fmt: skip


def image_of(height: int, width: int) -> np.ndarray:
    """uint8 (height, width, 3): waves under noise, and a part in black and white, which overshoots."""
    rng = np.random.default_rng(height * 20011 + width)
    y, x = np.indices((height, width))
    waves = 127 + 90 * np.sin(x / 7 + y / 11)[..., None] + rng.integers(-30, 30, (height, width, 3))
    sharp = rng.integers(0, 2, (height, width, 3)) * 255
    return np.where((x > width // 2)[..., None], sharp, waves).clip(0, 255).astype(np.uint8)


def digest(patches: Any) -> str:
    """Of the bits of patches in float32."""
    return hashlib.sha256(np.ascontiguousarray(patches, np.float32).tobytes()).hexdigest()[:20]
