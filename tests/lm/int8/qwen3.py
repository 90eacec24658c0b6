"""A small Qwen3, and its INT8 pipeline in numpy, written without Iron's operators."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from iron_lm import loading
from iron_lm.loading import Loaded
from iron_lm.parts.rotary import RotaryConfig
from iron_qwen3.model import Qwen3

F32 = np.float32
CONFIG = attrs.evolve(
    Qwen3.full_size(),
    **dict(name="small", vocab_size=512, hidden_size=128, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=64, intermediate_size=192),
    max_positions=128,
    rotary=RotaryConfig(64, 1000000.0),
)


def small(**options: Any) -> Loaded:
    """Quantised, its weights drawn: float32 all through unless `options` say otherwise."""
    return loading.random(Qwen3, CONFIG, 1, **dict(quantize="int8", dtype="float32", max_seq_len=32) | options)


class Pipeline:
    """`seen`: int64 (rows, K) activations and (rows, N) sums of every product, in order; `logits`: float32 (rows, vocab)."""

    def __init__(self, weights: dict[str, Any], activation_scale: str) -> None:
        self.weights = {path: np.asarray(array).astype(F32) for path, array in weights.items()}
        self.fixed = activation_scale == "fixed"
        self.seen: list[tuple[np.ndarray, np.ndarray]] = []

    def product(self, x: np.ndarray, *paths: str) -> np.ndarray:
        whole = np.concatenate([self.weights[path] for path in paths])
        scale = np.abs(whole).max() / F32(127)
        matrix = np.rint(whole * (F32(1) / scale)).astype(np.int64)
        unit = np.full((len(x), 1), F32(5 / 127)) if self.fixed else np.abs(x).max(-1, keepdims=True) / F32(127)
        integers = np.clip(np.rint(x * (F32(1) / unit)), -127, 127).astype(np.int64)
        self.seen.append((integers, integers @ matrix.T))
        return self.seen[-1][1].astype(F32) * (unit * scale)

    def norm(self, x: np.ndarray, path: str) -> np.ndarray:
        mean = (x.astype(np.float64) ** 2).mean(-1, keepdims=True)
        return (x / np.sqrt(mean + CONFIG.norm_epsilon)).astype(F32) * self.weights[path]

    def run(self, ids: list[int]) -> np.ndarray:
        c, n = CONFIG, len(ids)
        frequency = c.rotary.base ** -(np.arange(0, c.head_dim, 2) / c.head_dim)
        angle = np.arange(n)[:, None] * frequency
        cos, sin = np.cos(angle).astype(F32)[:, None], np.sin(angle).astype(F32)[:, None]

        def turned(x: np.ndarray, path: str) -> np.ndarray:
            x = self.norm(x.reshape(n, -1, c.head_dim), path)
            low, high = np.split(x, 2, -1)
            return np.concatenate([low * cos - high * sin, high * cos + low * sin], -1)

        x = self.weights["embedding.table"][ids]
        for i in range(c.num_layers):
            mixer, ffn = f"layers.{i}.mixer", f"layers.{i}.ffn"
            y = self.product(self.norm(x, f"layers.{i}.mixer_norm.weight"), f"{mixer}.q", f"{mixer}.k", f"{mixer}.v")
            q, k, v = np.split(y, np.cumsum([c.num_heads, c.num_kv_heads]) * c.head_dim, -1)
            q, k, v = turned(q, f"{mixer}.q_norm.weight"), turned(k, f"{mixer}.k_norm.weight"), v.reshape(n, -1, c.head_dim)
            heads = []
            for h in range(c.num_heads):
                group = h * c.num_kv_heads // c.num_heads
                scores = q[:, h] @ k[:, group].T / F32(c.head_dim**0.5) + np.triu(np.full((n, n), -np.inf, F32), 1)
                share = np.exp(scores - scores.max(-1, keepdims=True))
                heads.append(share / share.sum(-1, keepdims=True) @ v[:, group])
            x = x + self.product(np.concatenate(heads, -1), f"{mixer}.o")
            gate, up = np.split(self.product(self.norm(x, f"layers.{i}.ffn_norm.weight"), f"{ffn}.gate", f"{ffn}.up"), 2, -1)
            x = x + self.product(gate / (1 + np.exp(-gate)) * up, f"{ffn}.down")
        return self.norm(x, "norm.weight") @ self.weights["embedding.table"].T
