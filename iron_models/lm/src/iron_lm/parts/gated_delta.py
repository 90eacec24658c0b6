"""`GatedDelta`: a mixer that keeps one memory of all tokens, corrected by every token and fading: GatedDeltaNet."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

import iron_core as iron
from iron_core import PackedArray
from iron_core.declare.formats import as_dtype
from iron_core.errors import ParamError
from iron_lm.fields import counted, flag, positive
from iron_lm.parts.norm import Norm, NormConfig
from iron_lm.parts.part import Part, Weights, bounded, is_prompt, widen
from iron_lm.parts.projection import Projection
from iron_lm.parts.recurrent_state import RecurrentState
from iron_lm.run import Run
from iron_ops_aie import CausalConv1d, Copy, DeltaGates, ElementwiseMul, GatedDeltaStep, L2Norm, SiLU
from iron_ops_aie.logistic import logistic, silu

#: What is added to the sum of a key's squares, and a query's, under the root.
EPSILON = 1e-6


@attrs.frozen
class GatedDeltaConfig:
    """key_heads: of keys and queries, of key_dim numbers each; value_heads: of values, of value_dim. taps: of the convolution. epsilon:
    of the norm of what is read. tiled: value head h reads key head h % key_heads, as llama.cpp's converter orders them; else value
    heads that read one key head lie one behind another."""

    hidden_size: int = attrs.field(validator=counted)
    key_heads: int = attrs.field(validator=counted)
    value_heads: int = attrs.field(validator=counted)
    key_dim: int = attrs.field(validator=counted)
    value_dim: int = attrs.field(validator=counted)
    taps: int = attrs.field(default=4, validator=counted)
    epsilon: float = attrs.field(default=1e-6, validator=positive)
    tiled: bool = attrs.field(default=False, validator=flag)

    def __attrs_post_init__(self) -> None:
        if self.value_heads % self.key_heads:
            raise ParamError(
                f"GatedDeltaConfig: key_heads={self.key_heads} does not divide value_heads={self.value_heads}. Legal: a divisor of it."
            )
        if self.taps < 2:
            raise ParamError(f"GatedDeltaConfig: taps={self.taps}; legal: at least 2.")

    @property
    def keys(self) -> int:
        """Numbers of all keys of a token."""
        return self.key_heads * self.key_dim

    @property
    def values(self) -> int:
        """Numbers of all values of a token."""
        return self.value_heads * self.value_dim

    @property
    def channels(self) -> int:
        """What is convolved: queries, keys and values."""
        return 2 * self.keys + self.values


class GatedDelta(Part):
    """x: (rows, hidden_size), and the same shape comes out.

        q, k, v = silu(convolved(qkv x));  beta = sigmoid(b x);  g = -rate softplus(a x + bias)
        o = the gated delta rule (`GatedDeltaStep`) of q and k at length 1, v, g and beta
        out = o_matrix (norm(o, each head by itself) silu(z x))

    `conv` is (taps, channels), the oldest row's weights first; `rate`, positive, and `bias` are a number for each value head. What is
    kept of the tokens is the convolution's last taps - 1 rows, and the rule's memory in float32. A token has the same bits in a
    prompt and by itself.
    """

    category = "delta rule"

    qkv: Any
    z: Any
    b: Any
    a: Any
    o: Any
    conv: Any
    rate: Any
    bias: Any

    def __init__(self, config: GatedDeltaConfig, run: Run) -> None:
        c = self.config = config
        self.run = run
        heads = (c.value_heads, c.hidden_size)
        self.ins = Projection(self, run, qkv=(c.channels, c.hidden_size), z=(c.values, c.hidden_size), b=heads, a=heads)
        self.out = Projection(self, run, o=(c.hidden_size, c.values))
        self.needs(conv=(c.taps, c.channels), rate=(c.value_heads,), bias=(c.value_heads,))
        self.norm = Norm(NormConfig(c.value_dim, c.epsilon))
        self.cache = RecurrentState(
            before=((c.taps - 1, c.channels), as_dtype(run.dtype)), memory=((c.value_heads, c.key_dim, c.value_dim), np.float32)
        )

    def multiplied(self) -> tuple[str, ...]:
        """Without `b` and `a`, whose few rows open and fade the memory."""
        return ("qkv", "z", "o")

    def arranged(self, name: str, array: Any) -> Any:
        if name == "conv" and isinstance(array, PackedArray):
            return widen(array)  # a convolution takes no blocks
        return -widen(array) if name == "rate" else widen(array) if name == "bias" else array

    def body(
        self,
        x: Any,
        *,
        chunk: iron.Scratchpad[np.int32],
        rows: iron.Scratchpad[np.int32],
        position: iron.Scratchpad[np.int32],
    ) -> Any:
        c, x = self.config, bounded(x, rows)
        past = chunk if is_prompt(x, self.run) else position  # 0 where a sequence begins, which is all that is asked of it
        qkv, z, b, a = self.ins(x)
        with iron.category("convolution"):
            _, mixed = CausalConv1d(qkv, self.conv, self.cache.before, past=past)
            q, k, v = self._cut(SiLU(mixed))
        n = x.shape[0]
        q, k = (L2Norm(y.reshape(n * c.key_heads, c.key_dim), epsilon=EPSILON).reshape(n, c.key_heads, c.key_dim) for y in (q, k))
        g, beta = DeltaGates(a, b, self.bias, self.rate)
        v = v.reshape(n, c.value_heads, c.value_dim)
        _, o = GatedDeltaStep(q, k, v, g, beta, self.cache.memory, past=past, tiled=c.tiled)
        o = self.norm(o.reshape(n * c.value_heads, c.value_dim)).reshape(n, c.values)
        return self.out(ElementwiseMul(o, SiLU(z)))

    def _cut(self, y: Any) -> list[Any]:
        """Queries, keys and values of y (rows, channels). Those of one row lie together; of several they are copied apart."""
        c, found, at = self.config, [], 0
        for width in (c.keys, c.keys, c.values):
            part = slice(at, at + width)
            found.append(y.reshape(c.channels)[part].reshape(1, width) if y.shape[0] == 1 else Copy(y[:, part]))
            at += width
        return found

    def twin(self, weights: Weights, x: Any, positions: Any) -> np.ndarray:
        """positions: not looked at, for all tokens before are there."""
        c, n = self.config, len(x)
        qkv, z, b, a = (np.asarray(x @ widen(weights[name]).T) for name in ("qkv", "z", "b", "a"))
        padded = np.concatenate([np.zeros((c.taps - 1, c.channels), np.float32), qkv])
        conv = widen(weights["conv"])
        y = silu(np.sum([conv[j] * padded[j : j + n] for j in range(c.taps)], 0))
        q, k, v = np.split(y, [c.keys, 2 * c.keys], 1)
        read = np.arange(c.value_heads) % c.key_heads if c.tiled else np.arange(c.value_heads) // (c.value_heads // c.key_heads)
        q, k = (_unit(part.reshape(n, c.key_heads, c.key_dim))[:, read] for part in (q, k))
        v = v.reshape(n, c.value_heads, c.value_dim)
        fade = np.exp(-widen(weights["rate"]) * np.logaddexp(0, a + widen(weights["bias"])))
        beta = logistic(b)
        memory, out = np.zeros((c.value_heads, c.key_dim, c.value_dim), np.float32), np.empty_like(v)
        for t in range(n):
            memory = memory * fade[t][:, None, None]
            wrong = beta[t][:, None] * (v[t] - np.einsum("hkv,hk->hv", memory, k[t]))
            memory = memory + k[t][:, :, None] * wrong[:, None, :]
            out[t] = np.einsum("hkv,hk->hv", memory, q[t]) * np.float32(c.key_dim**-0.5)
        normed = np.asarray(self.norm.twin(self.inside(weights, "norm"), out)).reshape(n, c.values)
        return np.asarray((normed * silu(z)) @ widen(weights["o"]).T)


def _unit(x: np.ndarray) -> np.ndarray:
    """The twin's rows at length 1."""
    return np.asarray(x / np.sqrt((x * x).sum(-1, keepdims=True) + np.float32(EPSILON)))
