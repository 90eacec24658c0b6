"""`Oracle`: a decoder's forward pass in float32 numpy, written without the operators, a layer widened at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core.declare.formats import PackedArray
from iron_lm.config import Config

_HEAD_ROWS = 8192  # rows of the head widened at once


def widen(array: Any) -> np.ndarray:
    """float32 numbers of any weight."""
    return array.dequantize() if isinstance(array, PackedArray) else np.asarray(array).astype(np.float32)


class Oracle:
    """The llama block. weights: a tree with embedding, layers, norm and, if untied, head."""

    def __init__(self, config: Config, weights: Any) -> None:
        self.config = config
        self.weights = weights

    def logits(self, ids: Any) -> np.ndarray:
        """float32 (n, vocab): the logits after each of n tokens, attending to all before it."""
        ids = np.asarray(ids, np.int64)
        x = self.embed(ids)
        angles = self.config.angles(len(ids))
        for layer in self.weights.layers:
            x = self.layer(x, layer, angles)
        return self.head(x)

    def embed(self, ids: np.ndarray) -> np.ndarray:
        return widen(self.weights.embedding[ids])

    def norm(self, x: np.ndarray, weight: Any) -> np.ndarray:
        mean = np.mean(x.astype(np.float64) ** 2, -1, keepdims=True)
        return (x / np.sqrt(mean + self.config.norm_epsilon)).astype(np.float32) * widen(weight)

    def rotate(self, x: np.ndarray, angles: np.ndarray) -> np.ndarray:
        """x (n, heads, d): each pair turned by its position's angle."""
        c, s = angles[:, None, 0::2], angles[:, None, 1::2]
        half = x.shape[-1] // 2
        out = np.empty_like(x)
        pairs = (slice(0, None, 2), slice(1, None, 2)) if self.config.rope_neighbours else (slice(half), slice(half, None))
        a, b = x[..., pairs[0]], x[..., pairs[1]]
        out[..., pairs[0]], out[..., pairs[1]] = a * c - b * s, a * s + b * c
        return out

    def attend(self, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
        """Causal grouped-query attention; q (n, heads, d), k and v (n, groups, d) -> (n, heads * d)."""
        n, heads, d = q.shape
        group = heads // k.shape[1]
        out = np.empty_like(q)
        masked = np.triu(np.full((n, n), -np.inf, np.float32), 1)
        for h in range(heads):
            scores = q[:, h] @ k[:, h // group].T * np.float32(d**-0.5) + masked
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            out[:, h] = scores / scores.sum(-1, keepdims=True) @ v[:, h // group]
        return out.reshape(n, heads * d)

    def layer(self, x: np.ndarray, w: Any, angles: np.ndarray) -> np.ndarray:
        c, n = self.config, len(x)
        y = self.norm(x, w.attention_norm)
        q = self.rotate((y @ widen(w.q).T).reshape(n, c.n_heads, c.head_dim), angles)
        k = self.rotate((y @ widen(w.k).T).reshape(n, c.n_kv_groups, c.head_dim), angles)
        v = (y @ widen(w.v).T).reshape(n, c.n_kv_groups, c.head_dim)
        x = x + self.attend(q, k, v) @ widen(w.o).T
        y = self.norm(x, w.ffn_norm)
        gate = y @ widen(w.gate).T
        with np.errstate(over="ignore"):
            gate = gate / (1 + np.exp(-gate))
        return x + (gate * (y @ widen(w.up).T)) @ widen(w.down).T

    def head(self, x: np.ndarray) -> np.ndarray:
        table = getattr(self.weights, "head", None)
        table = self.weights.embedding if table is None else table
        y = self.norm(x, self.weights.norm)
        rows = table.shape[0]
        return np.concatenate([y @ widen(table[i : i + _HEAD_ROWS]).T for i in range(0, rows, _HEAD_ROWS)], -1)
