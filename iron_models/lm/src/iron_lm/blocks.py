"""The pieces decoders are made of: projections, the gated feed-forward, the layer, the head."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from iron_core.declare.formats import format_of
from iron_ops_aie import GELU, GEMM, GEMV, MHA, Copy, ElementwiseAdd, ElementwiseMul, RMSNorm, RoPE, SiLU, SoftCap

GATES: dict[str, Any] = {"silu": SiLU, "gelu_tanh": GELU}


def project(x: Any, weight: Any, activations: str = "exact", out: Any = None) -> Any:
    """x (rows, K) times weight (N, K) transposed -> (rows, N): GEMV for one row, GEMM for more (or for rows a call bounds).

    activations: the arithmetic where the weight is block-quantised. out: the dtype of the result (x's by default).
    """
    extra: dict[str, Any] = {} if out is None else {"O": out}
    if format_of(weight).packed:
        extra["activations"] = activations
    if x.shape[0] == 1 and not x.bounds:
        return GEMV(weight, x.reshape(x.shape[1]), **extra).reshape(1, -1)
    return GEMM(x, weight, b_col_maj=True, **extra)


def gated(x: Any, gate: Any, up: Any, down: Any, activation: str = "silu", activations: str = "exact") -> Any:
    """down(f(gate x) * up x) for rows x (rows, width); f is one of `GATES`."""
    g, u = (project(x, matrix, activations) for matrix in (gate, up))
    return project(ElementwiseMul(GATES[activation](g), u), down, activations)


@attrs.frozen
class Step:
    """What a layer knows of the call it is traced for.

    prompt: a chunk of rows rather than one token. angles: the rows' rotary tables, that of the layers that see
    everything first and that of the layers that slide last (where both are one, there is one). chunk, rows, position: per-call values;
    `position` is the last row's.
    """

    prompt: bool
    angles: list[Any]
    chunk: Any
    rows: Any
    position: Any


class Block:
    """The decoder's layer and head, as the config and the weights there are say.

    A layer: norm, attention with rotary embedding over a cache, norm, gated feed-forward. Where it has weights `q_norm` and
    `k_norm`, each head's queries and keys are normed before they turn; where it has `post_attention_norm` or
    `post_ffn_norm`, what attention or the feed-forward gives is normed before it is added.
    """

    config: Any
    embedding: Any
    head_weight: Any
    keys: list[Any]
    values: list[Any]
    norm: Any

    def layer(self, step: Step, i: int, w: Any, x: Any) -> Any:
        """One layer: x (rows, hidden_size) -> the same shape."""
        c = self.config
        y = self.normed(x, w.attention_norm)
        q, k, v = (project(y, matrix, c.activations) for matrix in (w.q, w.k, w.v))  # one after another: they can share a pass over y
        q = self.rotate(step, i, q, c.num_heads, getattr(w, "q_norm", None))
        k = self.rotate(step, i, k, c.num_kv_heads, getattr(w, "k_norm", None))
        o = project(self.attend(step, i, q, k, v), w.o, c.activations)
        x = ElementwiseAdd(x, self.normed(o, getattr(w, "post_attention_norm", None)))
        y = gated(self.normed(x, w.ffn_norm), w.gate, w.up, w.down, c.activation, c.activations)
        return ElementwiseAdd(x, self.normed(y, getattr(w, "post_ffn_norm", None)))

    def head(self, x: Any) -> Any:
        """Logits (1, vocab), float32, of x (1, hidden_size): the final norm, then the head, which may be the embedding."""
        c = self.config
        table = self.embedding if self.head_weight is None else self.head_weight
        logits = project(self.normed(x, self.norm), table, c.activations, out=np.float32)
        return logits if c.logit_cap is None else SoftCap(logits, cap=c.logit_cap)

    def normed(self, x: Any, weight: Any) -> Any:
        """Rows x normed; x itself without a weight."""
        return x if weight is None else RMSNorm(x, weight=weight, epsilon=self.config.norm_epsilon)

    def rotate(self, step: Step, i: int, x: Any, heads: int, norm: Any) -> Any:
        """x (rows, heads * head_dim) -> (rows * heads, head_dim), each head normed if layer i does that, and turned."""
        c = self.config
        flat = self.normed(x.reshape(x.shape[0] * heads, c.head_dim), norm)
        return RoPE(flat, step.angles[-1 if c.slides(i) else 0], method_type=int(c.rope_neighbours))

    def attend(self, step: Step, i: int, q: Any, k: Any, v: Any) -> Any:
        """Write k and v into layer i's caches, then attend to everything written so far, or to the last of it."""
        c = self.config
        L, C, G, D = c.max_seq_len, c.prefill_chunk, c.num_kv_heads, c.head_dim
        keys, values = self.keys[i], self.values[i]
        if step.prompt:
            for new, cache in ((k, keys), (v, values)):
                Copy(new.reshape(C, G, D), cache.reshape(L // C, C, G, D)[step.chunk, : step.rows])
        else:
            for new, cache in ((k, keys), (v, values)):
                Copy(new.reshape(G, D), cache[step.position])
        n = C if step.prompt else 1
        seen = step.position + 1
        extra: dict[str, Any] = {} if c.score_scale is None else {"scale": c.score_scale}
        if c.slides(i):
            extra["window"] = c.window - 1  # MHA counts the keys before the query's own
        q = q.reshape(n, c.num_heads, D)
        o = MHA(q, keys[:seen], values[:seen], heads_interleaved=True, kv_interleaved=True, **extra)
        return o.reshape(n, c.num_heads * D)


__all__ = ["GATES", "Block", "Step", "gated", "project"]
