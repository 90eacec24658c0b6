"""Weights drawn by their names in a checkpoint, so that a test and what made its numbers have the same."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from tests.resizes import image_of

#: Bounds that hold some of what goes through them.
BOUNDS = {"input_min": -2.0, "input_max": 1.75, "output_min": -1.5, "output_max": 2.25}


#: Tokens of texts: few, about a multiple of 64, about 512, and as many as the model takes.
LENGTHS = (1, 2, 63, 64, 65, 511, 513, 640)
#: What of the vision tower's config differs in the model that takes pictures, whose patches are of the size that images are cut into.
PICTURED = {"patch_size": 16, "pooling_kernel_size": 3, "position_embedding_size": 128}


def text_of(tokens: int) -> np.ndarray:
    """Ids that stand for themselves."""
    return np.random.default_rng(3).integers(0, 500, LENGTHS[-1])[:tokens].astype(np.int32)


def frames() -> list[np.ndarray]:
    """Of a video: three images of one size."""
    first = image_of(40, 60)
    return [first, np.ascontiguousarray(first[::-1]), 255 - first]


def numbers(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Matrices of size 1 / root of what each output is made of, norms about 1, other vectors about 0, layers' scalars 0.8."""
    last = name.rpartition(".")[2]
    if last in BOUNDS:
        return np.full(shape, BOUNDS[last], np.float32)
    if last == "layer_scalar":
        return np.full(shape, 0.8, np.float32)
    drawn = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape)
    if len(shape) == 1:
        return (("norm" in name) + 0.1 * drawn).astype(np.float32)
    return (drawn / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def mild(name: str, array: Any) -> Any:
    """Norms of queries and keys so small that scores, which nothing scales, are about 1; other weights as they are.

    With norms about 1 scores are about the root of a head's size: each token hears one other alone, and layers of that make noise of
    what a dtype rounds, whoever computes them.
    """
    factor = len(array) ** -0.25 if name.endswith(("q_norm.weight", "k_norm.weight")) else 1
    return array * np.asarray(factor, array.dtype)


def clip(samples: int, seed: int) -> Any:
    """float32 (samples,): tones that rise, and noise."""
    rng = np.random.default_rng(seed)
    t = np.arange(samples) / 16000
    tones = sum(np.sin(2 * np.pi * (f + 40 * t) * t + p) for f, p in zip(rng.uniform(80, 4000, 5), rng.uniform(0, 6, 5), strict=True))
    return (0.1 * tones + 0.02 * rng.standard_normal(samples)).astype(np.float32)
