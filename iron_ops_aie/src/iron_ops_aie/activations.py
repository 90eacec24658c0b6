"""Activation arithmetic of products with block-quantised weights: how a row of activations is rounded.

"exact" multiplies the activations as they are by the dequantised weights. "int8_block" rounds each group of a row
to int8 with one float32 scale: scale = max|x| / 127, q = rint(x * (1 / scale)), ties to even, all in float32; the
product of a block is then an integer, scaled once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from iron_core.declare.formats import BlockQuant, PackedArray
from iron_core.errors import ParamError

ARITHMETIC = ("exact", "int8_block")


def check(name: str, activations: str, weight: Any) -> None:
    """ParamError unless this arithmetic exists for this weight format."""
    if activations not in ARITHMETIC:
        raise ParamError(f"{name}: activations={activations!r}. Legal: {', '.join(ARITHMETIC)}.")
    if activations == "int8_block" and not isinstance(weight, BlockQuant):
        raise ParamError(f"{name}: activations='int8_block' needs block-quantised weights; these are {weight}. Legal: 'exact'.")


def quantize_rows(x: np.ndarray, group: int) -> tuple[np.ndarray, np.ndarray]:
    """int32 rows (..., K) and their float32 scales (..., K / group)."""
    blocks = np.asarray(x).astype(np.float32).reshape(*x.shape[:-1], -1, group)
    scale = np.abs(blocks).max(-1) / np.float32(127)
    with np.errstate(divide="ignore"):
        inverse = np.where(scale > 0, np.float32(1) / scale, np.float32(0)).astype(np.float32)
    q = np.rint(blocks * inverse[..., None]).astype(np.int32)
    return q.reshape(x.shape), scale


def block_product(weights: PackedArray, x: np.ndarray) -> np.ndarray:
    """int8_block product: weights (M, K), activations (N, K) -> float64 (N, M).

    Block integers are exact; blocks are combined in float64 from float32 scales and minima.
    """
    group = weights.format.group
    ints, scales, minima = weights.format.fields(weights.data, weights.shape[-1])
    q, d = quantize_rows(x, group)
    rows, cols = ints.shape
    wide = ints.reshape(rows, -1, group).transpose(1, 2, 0).astype(np.float64)
    acts = q.reshape(len(q), -1, group).transpose(1, 0, 2).astype(np.float64)
    products = np.matmul(acts, wide)  # (blocks, N, M), exact: |sum| < 2^53
    left, right = d.astype(np.float64).T[:, :, None], scales.astype(np.float64).T[:, None, :]
    total = (products * left * right).sum(0)
    if minima is not None:
        sums = acts.sum(-1) * d.astype(np.float64).T  # (blocks, N)
        total += sums.T @ minima.astype(np.float64).T
    return total


def block_magnitude(weights: PackedArray, x: np.ndarray) -> np.ndarray:
    """Sum of the absolute terms of `block_product`, float64 (N, M)."""
    group = weights.format.group
    ints, scales, minima = weights.format.fields(weights.data, weights.shape[-1])
    q, d = quantize_rows(x, group)
    parts = np.abs(ints.reshape(len(ints), -1, group) * scales.astype(np.float64)[..., None])
    if minima is not None:
        parts = parts + np.abs(minima.astype(np.float64))[..., None]
    acts = np.abs(q.reshape(len(q), -1, group) * d.astype(np.float64)[..., None])
    return acts.reshape(len(q), -1) @ parts.reshape(len(ints), -1).T
