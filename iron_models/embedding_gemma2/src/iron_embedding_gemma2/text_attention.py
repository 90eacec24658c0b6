"""`TextAttention`: every token's queries over the keys of those before and behind it."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

import iron_core as iron
from iron_core.errors import ParamError
from iron_lm.fields import counted, optional, positive
from iron_lm.parts.norm import Norm, NormConfig
from iron_lm.parts.part import Part, Weights, widen
from iron_lm.parts.projection import Projection
from iron_lm.parts.rotary import Rotary
from iron_lm.run import Run
from iron_ops_aie import MHA, RoPE


@attrs.frozen
class TextAttentionConfig:
    """Sizes count numbers. reach: keys further than this from a query, on either side, are not seen; None: all are. epsilon: of
    the norms of queries, keys and values."""

    hidden_size: int = attrs.field(validator=counted)
    num_heads: int = attrs.field(validator=counted)
    num_kv_heads: int = attrs.field(validator=counted)
    head_dim: int = attrs.field(validator=counted)
    reach: int | None = attrs.field(default=None, validator=optional(counted))
    epsilon: float = attrs.field(default=1e-6, validator=positive)

    def __attrs_post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads:
            raise ParamError(f"TextAttentionConfig: num_kv_heads={self.num_kv_heads} does not divide num_heads={self.num_heads}.")


class TextAttention(Part):
    """Attention of grouped heads over all of a text. x: (rows, hidden_size), and the same shape comes out.

    Queries and keys are normed a head at a time and turned; values are normed without a weight. Scores are not scaled, and no
    token is hidden from those before it.
    """

    q: Any
    k: Any
    v: Any
    o: Any

    def __init__(self, config: TextAttentionConfig, run: Run, rotary: Rotary) -> None:
        c = self.config = config
        self.run, self.rotary = run, rotary
        queries, keys = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
        self.qkv = Projection(self, run, q=(queries, c.hidden_size), k=(keys, c.hidden_size), v=(keys, c.hidden_size))
        self.out = Projection(self, run, o=(c.hidden_size, queries))
        self.q_norm, self.k_norm = (Norm(NormConfig(c.head_dim, c.epsilon)) for _ in range(2))
        self.v_norm = Norm(NormConfig(c.head_dim, c.epsilon, weight=False))

    def body(self, x: Any, angles: Any, *, rows: iron.Scratchpad[np.int32]) -> Any:
        """angles: of each token, (rows, head_dim)."""
        c, n = self.config, x.shape[0]
        x, angles = (y if y.bounds else y[:rows] for y in (x, angles))
        q, k, v = self.qkv(x)
        q = RoPE(self.q_norm(q.reshape(n * c.num_heads, c.head_dim)), angles, method_type=0)
        k = RoPE(self.k_norm(k.reshape(n * c.num_kv_heads, c.head_dim)), angles, method_type=0)
        v = self.v_norm(v.reshape(n * c.num_kv_heads, c.head_dim))
        q, k, v = (y.reshape(n, -1, c.head_dim) for y in (q, k, v))
        extra: dict[str, Any] = {} if c.reach is None else {"window": c.reach}
        o = MHA(q, k, v, heads_interleaved=True, kv_interleaved=True, causal=False, scale=1.0, **extra)
        return self.out(o.reshape(n, c.num_heads * c.head_dim))

    def twin(self, weights: Weights, x: Any, positions: Any) -> np.ndarray:
        c, n = self.config, len(x)

        def heads(name: str) -> np.ndarray:
            norm = getattr(self, f"{name}_norm")
            y = (x @ widen(weights[name]).T).reshape(n, -1, c.head_dim)
            return np.asarray(norm.twin(self.inside(weights, f"{name}_norm"), y))

        q, k, v = heads("q"), heads("k"), heads("v")
        q, k = self.rotary.twin({}, q, positions), self.rotary.twin({}, k, positions)
        apart = np.abs(positions[:, None] - positions[None])
        unseen = np.where(apart <= (n if c.reach is None else c.reach), np.float32(0), np.float32(-np.inf))
        out = np.empty_like(q)
        for h in range(c.num_heads):
            group = h * c.num_kv_heads // c.num_heads
            scores = q[:, h] @ k[:, group].T + unseen
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            out[:, h] = scores / scores.sum(-1, keepdims=True) @ v[:, group]
        return np.asarray(out.reshape(n, -1) @ widen(weights["o"]).T)
