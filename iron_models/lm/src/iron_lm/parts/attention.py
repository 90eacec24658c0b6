"""`Attention`: queries over the keys and values so far."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

import iron_core as iron
from iron_core.errors import ParamError
from iron_lm.fields import counted, flag, made_by, optional, positive
from iron_lm.parts.axial_rotary import AxialRotary
from iron_lm.parts.cache import KVCache
from iron_lm.parts.norm import Norm, NormConfig
from iron_lm.parts.part import Part, Weights, bounded, is_prompt, widen
from iron_lm.parts.projection import Projection, biased
from iron_lm.parts.rotary import Rotary
from iron_lm.parts.standing import Standing
from iron_lm.run import Run
from iron_ops_aie import ElementwiseMul, RoPE, Sigmoid
from iron_ops_aie.logistic import logistic


@attrs.frozen
class AttentionConfig:
    """Sizes count numbers. scale: multiplies query times key (1 / sqrt(head_dim) by default). cap: bends these scores to within
    it. reach: keys further back than this are not seen; None: all are. q_norm and k_norm: queries and keys are normed before
    they turn, as many numbers at a time as the norm's size says: a head's, or a row's of all heads; v_norm: values are. bias: of
    queries, keys, values and gates; output_bias: of what comes out. gate: what the heads give is multiplied by sigmoid(gate x), a number of
    its own for each, before the heads are put together.
    """

    hidden_size: int = attrs.field(validator=counted)
    num_heads: int = attrs.field(validator=counted)
    num_kv_heads: int = attrs.field(validator=counted)
    head_dim: int = attrs.field(validator=counted)
    scale: float | None = attrs.field(default=None, validator=optional(positive))
    reach: int | None = attrs.field(default=None, validator=optional(counted))
    q_norm: NormConfig | None = attrs.field(default=None, validator=optional(made_by(NormConfig)))
    k_norm: NormConfig | None = attrs.field(default=None, validator=optional(made_by(NormConfig)))
    v_norm: NormConfig | None = attrs.field(default=None, validator=optional(made_by(NormConfig)), kw_only=True)
    bias: bool = attrs.field(default=False, validator=flag)
    output_bias: bool = attrs.field(default=False, validator=flag)
    cap: float | None = attrs.field(default=None, validator=optional(positive))
    gate: bool = attrs.field(default=False, validator=flag)

    def __attrs_post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads:
            raise ParamError(f"AttentionConfig: num_kv_heads={self.num_kv_heads} does not divide num_heads={self.num_heads}.")
        for name, heads in (("q_norm", self.num_heads), ("k_norm", self.num_kv_heads), ("v_norm", self.num_kv_heads)):
            norm, legal = getattr(self, name), (self.head_dim, heads * self.head_dim)
            if norm is not None and norm.size not in legal:
                raise ParamError(f"AttentionConfig: {name} of {norm.size} numbers; legal: {legal[0]}, a head, or {legal[1]}, all of them.")


class Attention(Part):
    """Causal attention of grouped heads over a cache. x: (rows, hidden_size), and the same shape comes out.

    rotary: turns queries and keys, where there is one; its angles are the body's second input. cache: its own, unless one
    is given that other layers write too.
    """

    category = "attention"

    q: Any
    k: Any
    v: Any
    o: Any
    gate: Any
    q_bias: Any
    k_bias: Any
    v_bias: Any
    gate_bias: Any
    o_bias: Any

    def __init__(
        self, config: AttentionConfig, run: Run, rotary: Rotary | AxialRotary | None = None, cache: KVCache | None = None
    ) -> None:
        c = self.config = config
        self.run, self.rotary = run, rotary
        self.cache = cache or KVCache(run, c.num_kv_heads, c.head_dim)
        queries, keys = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
        gates = {"gate": (queries, c.hidden_size)} if c.gate else {}
        self.qkv = Projection(self, run, q=(queries, c.hidden_size), k=(keys, c.hidden_size), v=(keys, c.hidden_size), **gates)
        self.out = Projection(self, run, o=(c.hidden_size, queries))
        self.q_bias = self.k_bias = self.v_bias = self.gate_bias = self.o_bias = None
        if c.bias:
            self.needs(q_bias=(queries,), k_bias=(keys,), v_bias=(keys,), **{"gate_bias": (queries,)} if c.gate else {})
        if c.output_bias:
            self.needs(o_bias=(c.hidden_size,))
        self.q_norm, self.k_norm = (None if norm is None else Norm(norm, self._order(norm.size)) for norm in (c.q_norm, c.k_norm))
        self.v_norm = None if c.v_norm is None else Norm(c.v_norm)

    def arranged(self, name: str, array: Any) -> Any:
        """Rows of queries and keys in the order in which a head's pairs turn: a score is the same in any."""
        order = self._order(array.shape[0]) if name in ("q", "k", "q_bias", "k_bias") else None
        return array if order is None else array[order]

    def _order(self, size: int) -> np.ndarray | None:
        """Which of the numbers of whole heads, `size` in all, stands at each place; None: each at its own."""
        order = None if self.rotary is None else self.rotary.config.order
        if order is None:
            return None
        heads = np.arange(size // len(order))[:, None]
        return (heads * len(order) + order).ravel()

    def body(
        self,
        x: Any,
        angles: Any = None,
        *,
        chunk: iron.Scratchpad[np.int32],
        rows: iron.Scratchpad[np.int32],
        position: iron.Scratchpad[np.int32],
    ) -> Any:
        x, angles = bounded(x, rows), bounded(angles, rows)
        q, k, v, gate = self.projected(x, angles)
        self.cache.write(k, v, not isinstance(position, Standing) and is_prompt(x, self.run), chunk, rows, position)
        return self.opened(self.cache.attend(self.by_heads(q), position, **self.scoring), gate)

    def projected(self, x: Any, angles: Any) -> tuple[Any, Any, Any, Any]:
        """Queries, keys and values of x (rows, hidden_size), a head a row: (rows * heads, head_dim); and the gates, or None."""
        c = self.config
        q, k, v, *gate = self.qkv(x)
        if c.bias:
            biases = (self.q_bias, self.k_bias, self.v_bias, self.gate_bias)
            q, k, v, *gate = (biased(y, bias) for y, bias in zip((q, k, v, *gate), biases, strict=False))
        q = self.turned(q, c.num_heads, self.q_norm, angles)
        k = self.turned(k, c.num_kv_heads, self.k_norm, angles)
        if self.v_norm is not None:
            n, size = v.shape[0], self.v_norm.config.size
            v = self.v_norm(v.reshape(n * c.num_kv_heads * c.head_dim // size, size)).reshape(n, c.num_kv_heads * c.head_dim)
        return q, k, v, gate[0] if gate else None

    @property
    def scoring(self) -> dict[str, Any]:
        """The fields of `MHA` that say how scores are made."""
        c = self.config
        return {name: value for name, value in (("scale", c.scale), ("window", c.reach), ("soft_cap", c.cap)) if value is not None}

    def by_heads(self, q: Any) -> Any:
        """Queries as `projected` gives them -> (rows, num_heads, head_dim)."""
        c = self.config
        return q.reshape(q.shape[0] // c.num_heads, c.num_heads, c.head_dim)

    def opened(self, o: Any, gate: Any) -> Any:
        """What comes out, (rows, hidden_size), of what the heads give, (rows, num_heads, head_dim)."""
        o = o.reshape(o.shape[0], o.shape[1] * o.shape[2])
        if gate is not None:
            o = ElementwiseMul(o, Sigmoid(gate))
        return self.out(o, bias=self.o_bias)

    def turned(self, x: Any, heads: int, norm: Norm | None, angles: Any) -> Any:
        """x (rows, heads * head_dim), normed and each head turned, where this part does that -> (rows * heads, head_dim)."""
        n, D = x.shape[0], self.config.head_dim
        if norm is not None:
            size = norm.config.size
            x = norm(x.reshape(n * heads * D // size, size))
        flat = x.reshape(n * heads, D)
        if self.rotary is None:
            return flat
        return RoPE(flat, angles, method_type=int(self.rotary.config.neighbours))

    def twin(self, weights: Weights, x: Any, positions: Any) -> np.ndarray:
        c, n = self.config, len(x)

        def rows(name: str, heads: int, norm: Norm | None = None) -> np.ndarray:
            y = self.times(weights, name, x)
            if c.bias:
                y = y + widen(weights[f"{name}_bias"])
            if norm is not None:
                y = norm.twin(self.inside(weights, f"{name}_norm"), y.reshape(-1, norm.config.size))
            return np.asarray(y).reshape(n, heads, c.head_dim)

        q, k = rows("q", c.num_heads, self.q_norm), rows("k", c.num_kv_heads, self.k_norm)
        v = rows("v", c.num_kv_heads, self.v_norm)
        if self.rotary is not None:
            q, k = self.rotary.twin({}, q, positions), self.rotary.twin({}, k, positions)
        o = self.attended(q, k, v)
        if c.gate:
            o = o * logistic(rows("gate", c.num_heads).reshape(n, -1))
        o = self.times(weights, "o", o)
        return o + widen(weights["o_bias"]) if c.output_bias else o

    def times(self, weights: Weights, name: str, x: np.ndarray) -> np.ndarray:
        """The twin's product of x (rows, K) with one of this part's matrices, transposed."""
        return np.asarray(x @ widen(weights[name]).T)

    def attended(self, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
        """The twin's softmax and sums of values. q (n, heads, d), k and v (n, groups, d) -> (n, heads * d); a query sees the keys
        that `seen` says."""
        n, heads, d = q.shape
        group = heads // k.shape[1]
        out = np.empty_like(q)
        masked = np.where(self.seen(n), np.float32(0), np.float32(-np.inf))
        scale, cap = self.config.scale or d**-0.5, self.config.cap
        for h in range(heads):
            scores = q[:, h] @ k[:, h // group].T * np.float32(scale)
            if cap is not None:
                scores = np.float32(cap) * np.tanh(scores / np.float32(cap))
            scores = scores + masked
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            out[:, h] = scores / scores.sum(-1, keepdims=True) @ v[:, h // group]
        return out.reshape(n, heads * d)

    def seen(self, n: int) -> np.ndarray:
        """bool (n, n): which keys each query sees, those up to its own that are in reach."""
        back = np.subtract.outer(np.arange(n), np.arange(n))
        return (back >= 0) & (back <= (n if self.config.reach is None else self.config.reach))
