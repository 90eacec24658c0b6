"""How rows are routed: the k largest of each, and their softmax. What `Route` means on every backend, to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_ops_aie.tokens import exp64


def powers(x: np.ndarray) -> np.ndarray:
    """`exp64` of float64 numbers <= 0, each."""
    counted = x >= exp64.LEAST
    x = np.where(counted, x, 0.0)
    n = (x * exp64.LOG2E - 0.5).astype(np.int64)
    r = x - n * exp64.LN2_HIGH
    r = r - n * exp64.LN2_LOW
    power = np.zeros(x.shape)
    for term in exp64.TERMS:
        power = power * r + term
    return np.where(counted, np.ldexp(power, n), 0.0)


def route(logits: Any, k: int, renormalise: bool, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """ids int32 (rows, k) and weights float32 (rows, k) of logits (rows, experts)."""
    wide = np.asarray(logits).astype(np.float64)
    order = np.argsort(-np.where(np.isnan(wide), -np.inf, wide), axis=-1, kind="stable")[:, :k]
    with np.errstate(invalid="ignore"):
        below = wide - wide.max(-1, keepdims=True)
        lost = ~np.isfinite(wide.max(-1, keepdims=True))  # a NaN, an infinity, or nothing but -inf
        made = powers(np.where(lost, 0.0, below))
        chosen = np.take_along_axis(made, order, -1)
        # In order, which another program can copy: np.sum adds pairwise.
        total = np.add.accumulate(chosen if renormalise else made, axis=-1)[:, -1:]
        weights = (chosen / total * float(np.float32(scale))).astype(np.float32)
    lost = np.broadcast_to(lost, order.shape)
    ids = np.where(lost, np.arange(k), order).astype(np.int32)
    return ids, np.where(lost, np.float32(np.nan), weights)
