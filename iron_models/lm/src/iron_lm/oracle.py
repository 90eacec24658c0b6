"""`Oracle`: a decoder's forward pass in float32 numpy, written without the operators, a layer widened at a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from iron_core import PackedArray
from iron_lm.config import Config

_HEAD_ROWS = 8192  # rows of the head widened at once


def widen(array: Any) -> np.ndarray:
    """float32 numbers of any weight."""
    return array.dequantize() if isinstance(array, PackedArray) else np.asarray(array).astype(np.float32)


class Oracle:
    """The decoder's layers. weights: a tree with embedding, layers, norm and, if untied, head."""

    def __init__(self, config: Config, weights: Any) -> None:
        self.config = config
        self.weights = weights

    def logits(self, ids: Any) -> np.ndarray:
        """float32 (n, vocab): the logits after each of n tokens, attending to all before it."""
        ids = np.asarray(ids, np.int64)
        x = self.embed(ids)
        every, local = self.config.angles(len(ids)), self.config.angles(len(ids), local=True)
        for i, layer in enumerate(self.weights.layers):
            slides = self.config.slides(i)
            x = self.layer(x, layer, local if slides else every, self.config.window if slides else None)
        return self.head(x)

    def embed(self, ids: np.ndarray) -> np.ndarray:
        return widen(self.weights.embedding[ids]) * np.float32(self.config.embedding_scale)

    def norm(self, x: np.ndarray, weight: Any) -> np.ndarray:
        """Rows x normed; x itself without a weight."""
        if weight is None:
            return x
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

    def attend(self, q: np.ndarray, k: np.ndarray, v: np.ndarray, window: int | None = None) -> np.ndarray:
        """Causal grouped-query attention; q (n, heads, d), k and v (n, groups, d) -> (n, heads * d).

        window: the tokens a query sees, its own among them; None: all before it.
        """
        n, heads, d = q.shape
        group = heads // k.shape[1]
        out = np.empty_like(q)
        masked = np.triu(np.full((n, n), -np.inf, np.float32), 1)
        if window is not None:
            masked += np.tril(np.full((n, n), -np.inf, np.float32), -window)
        scale = self.config.score_scale or d**-0.5
        for h in range(heads):
            scores = q[:, h] @ k[:, h // group].T * np.float32(scale) + masked
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            out[:, h] = scores / scores.sum(-1, keepdims=True) @ v[:, h // group]
        return out.reshape(n, heads * d)

    def layer(self, x: np.ndarray, w: Any, angles: np.ndarray, window: int | None = None) -> np.ndarray:
        c, n = self.config, len(x)
        y = self.norm(x, w.attention_norm)
        q = self.norm((y @ widen(w.q).T).reshape(n, c.num_heads, c.head_dim), getattr(w, "q_norm", None))
        k = self.norm((y @ widen(w.k).T).reshape(n, c.num_kv_heads, c.head_dim), getattr(w, "k_norm", None))
        q, k = self.rotate(q, angles), self.rotate(k, angles)
        v = (y @ widen(w.v).T).reshape(n, c.num_kv_heads, c.head_dim)
        x = x + self.norm(self.attend(q, k, v, window) @ widen(w.o).T, getattr(w, "post_attention_norm", None))
        y = self.norm(x, w.ffn_norm)
        hidden = self.gate(y @ widen(w.gate).T) * (y @ widen(w.up).T)
        return x + self.norm(hidden @ widen(w.down).T, getattr(w, "post_ffn_norm", None))

    def gate(self, x: np.ndarray) -> np.ndarray:
        if self.config.activation == "gelu_tanh":
            return 0.5 * x * (1 + np.tanh(np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x**3)))
        with np.errstate(over="ignore"):
            return np.asarray(x / (1 + np.exp(-x)))

    def head(self, x: np.ndarray) -> np.ndarray:
        table = getattr(self.weights, "head", None)
        table = self.weights.embedding if table is None else table
        y = self.norm(x, self.weights.norm)
        rows = table.shape[0]
        logits = np.concatenate([y @ widen(table[i : i + _HEAD_ROWS]).T for i in range(0, rows, _HEAD_ROWS)], -1)
        cap = self.config.logit_cap
        return logits if cap is None else np.float32(cap) * np.tanh(logits / np.float32(cap))
