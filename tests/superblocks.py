"""Blocks of GGUF's formats that are only read, drawn: what no quantiser promises to leave out, every integer, scale and minimum."""

from __future__ import annotations

import numpy as np

from iron_core.declare.formats import Format, PackedArray

#: About how large the integers are of formats that do not say so.
SIZES = {"q5_0": 8, "q5_1": 16}


def drawn(rng: np.random.Generator, format: Format, shape: tuple[int, ...], spread: float = 1.0, byte: int | None = None) -> PackedArray:
    """A tensor of random bits, or of one byte again and again, its float scales drawn so that numbers stay of the size of `spread`."""
    data = rng.integers(0, 256, format.stored(shape), np.uint8) if byte is None else np.full(format.stored(shape), byte, np.uint8)
    blocks = data.reshape(-1, format.block_bytes)
    size = spread / (SIZES.get(format.name) or format.size)
    for at, dtype in format.scale_offsets:
        numbers = rng.choice([-1, 1], len(blocks)) * size * rng.uniform(0.5, 2, len(blocks))
        blocks[:, at : at + 2] = numbers.astype(dtype)[:, None].view(np.uint8)
    if format.name == "mxfp4":
        blocks[:, 0] = rng.integers(126, 131, len(blocks)) + int(np.log2(spread))
    return PackedArray(data, shape, format)
