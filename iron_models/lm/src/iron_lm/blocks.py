"""The pieces decoders are made of: projections, the gated feed-forward, the llama layer."""

from __future__ import annotations

from typing import Any

import attrs

from iron_core.declare.formats import BlockQuant, format_of
from iron_ops_aie import GEMM, GEMV, MHA, Copy, ElementwiseAdd, ElementwiseMul, RMSNorm, RoPE, SiLU


def project(x: Any, weight: Any, activations: str = "exact", out: Any = None) -> Any:
    """x (rows, K) times weight (N, K) transposed -> (rows, N): GEMV for one row, GEMM for more (or for rows a call bounds).

    activations: the arithmetic where the weight is block-quantised. out: the dtype of the result (x's by default).
    """
    extra: dict[str, Any] = {} if out is None else {"O": out}
    if isinstance(format_of(weight) if not hasattr(weight, "format") else weight.format, BlockQuant):
        extra["activations"] = activations
    if x.shape[0] == 1 and not x.bounds:
        return GEMV(weight, x.reshape(x.shape[1]), **extra).reshape(1, -1)
    return GEMM(x, weight, b_col_maj=True, **extra)


def swiglu(x: Any, gate: Any, up: Any, down: Any, activations: str = "exact") -> Any:
    """down(SiLU(gate x) * up x) for rows x (rows, width)."""
    hidden = ElementwiseMul(SiLU(project(x, gate, activations)), project(x, up, activations))
    return project(hidden, down, activations)


@attrs.frozen
class Step:
    """What a layer knows of the call it is traced for.

    prompt: a chunk of rows rather than one token. angles: the rows' rotary table. chunk, rows, position: per-call values;
    `position` is the last row's.
    """

    prompt: bool
    angles: Any
    chunk: Any
    rows: Any
    position: Any


class Block:
    """The llama layer: RMSNorm, attention with rotary embedding over a cache, RMSNorm, SwiGLU."""

    config: Any
    keys: list[Any]
    values: list[Any]

    def layer(self, step: Step, i: int, w: Any, x: Any) -> Any:
        """One layer: x (rows, emb_dim) -> the same shape."""
        c = self.config
        y = RMSNorm(x, weight=w.attention_norm, epsilon=c.norm_epsilon)
        q = self.rotate(step, project(y, w.q, c.activations), c.n_heads)
        k = self.rotate(step, project(y, w.k, c.activations), c.n_kv_groups)
        v = project(y, w.v, c.activations)
        o = self.attend(step, i, q, k, v)
        x = ElementwiseAdd(x, project(o, w.o, c.activations))
        y = RMSNorm(x, weight=w.ffn_norm, epsilon=c.norm_epsilon)
        return ElementwiseAdd(x, swiglu(y, w.gate, w.up, w.down, c.activations))

    def rotate(self, step: Step, x: Any, heads: int) -> Any:
        c = self.config
        flat = x.reshape(x.shape[0] * heads, c.head_dim)
        return RoPE(flat, step.angles, method_type=int(c.rope_neighbours))

    def attend(self, step: Step, i: int, q: Any, k: Any, v: Any) -> Any:
        """Write k and v into layer i's caches, then attend to everything written so far."""
        c = self.config
        L, C, G, D = c.max_seq_len, c.prefill_chunk, c.n_kv_groups, c.head_dim
        keys, values = self.keys[i], self.values[i]
        if step.prompt:
            for new, cache in ((k, keys), (v, values)):
                Copy(new.reshape(C, G, D), cache.reshape(L // C, C, G, D)[step.chunk, : step.rows])
        else:
            for new, cache in ((k, keys), (v, values)):
                Copy(new.reshape(G, D), cache[step.position])
        n = C if step.prompt else 1
        seen = step.position + 1
        o = MHA(
            q.reshape(n, c.n_heads, D), keys[:seen], values[:seen], heads_interleaved=True, kv_interleaved=True
        )
        return o.reshape(n, c.n_heads * D)


__all__ = ["Block", "Step", "project", "swiglu"]
