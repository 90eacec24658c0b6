"""`DeltaRule`: what the operators of a gated delta rule declare: a memory of keys and values that fades and is corrected."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from iron_core import Auto, DType, Extent, In, InOut, Operator, Out, Param, Tolerance, Value, Width, bfloat16, round_to, widen
from iron_core.errors import ParamError
from iron_ops_aie.recurrent.delta_rule_array import DeltaRuleArray
from iron_ops_aie.rules import floats_only

#: Tokens of the longest sequence.
HISTORY = 1 << 24


class DeltaRule(DeltaRuleArray, Operator):
    """Token by token, and for each value head with the key head that it reads:

        S = exp(g) S;  u = beta (v - S^T k);  S = S + k u^T;  o = scale S^T q

    q, k: (rows, key_heads, key_dim). v, o: (rows, value_heads, value_dim). g, beta: (rows, value_heads), float32; g is not positive
    and beta is from 0 to 1. state: (value_heads, key_dim, value_dim), float32: S before the call's first token, and then behind its
    last. scale: key_dim^-0.5 by default. tiled: value head h reads key head h % key_heads; else every value_heads / key_heads of
    them, one behind another, read one. `valid` bounds the rows. `past`: a per-call number, how many tokens came before, `history` at
    most; where it is 0 a sequence begins, and the state counts as zeros. Where calls do not give it the state counts.

    Keys are of length 1 or less, else what is corrected grows.

    The array (bfloat16): a core per column goes through the tokens one by one, a few columns of one head's state at a time, in float32;
    the state is read and written once a call.

    Errors: ParamError for integers, for key_heads that do not divide value_heads. Unresolvable where no array takes it.
    """

    rows: int = Param()
    key_heads: int = Param()
    value_heads: int = Param(array=True)
    key_dim: int = Param(array=True)
    value_dim: int = Param(array=True)
    scale: float = Param(default=lambda op: op.key_dim**-0.5, array=True)
    tiled: bool = Param(default=False)
    history: int = Param(default=HISTORY)
    T: Any = DType(default=bfloat16)
    num_aie_columns: int = Auto(domain=Width())
    #: Of a core: columns of a state, tokens of a block, numbers of an object of these, and of one of the state and of gates.
    width: int = Auto(1, array=True, derived=True)
    block: int = Auto(1, array=True, derived=True)
    row: int = Auto(1, array=True, derived=True)
    fed: int = Auto(1, array=True, derived=True)
    q = In(rows, key_heads, key_dim, dtype=T, tile=row, per=num_aie_columns)
    k = In(rows, key_heads, key_dim, dtype=T)
    v = In(rows, value_heads, value_dim, dtype=T)
    g = In(rows, value_heads, dtype=np.float32, tile=fed, per=num_aie_columns)
    beta = In(rows, value_heads, dtype=np.float32)
    state = InOut(value_heads, key_dim, value_dim, dtype=np.float32, tile=width, per=num_aie_columns)
    o = Out(rows, value_heads, value_dim, dtype=T, tile=width, per=num_aie_columns)
    valid = Extent(rows)
    past = Extent(history)
    #: Blocks of a call, the rows that are made, and how many came before.
    blocks = Value(derive=lambda op: -(-op.rows // op.block))
    steps = Value(derive=lambda op: op.valid)
    begun = Value(derive=lambda op: op.past)

    def validate(self) -> None:
        floats_only(self, "T")
        if self.value_heads % self.key_heads:
            raise ParamError(
                f"{type(self).__name__}: key_heads={self.key_heads} does not divide value_heads={self.value_heads}. Legal: a divisor of it."
            )

    @abstractmethod
    def reference(self, q: Any, k: Any, v: Any, g: Any, beta: Any, state: Any) -> Any:
        """The state and o, unrounded."""

    def widened(self, q: Any, k: Any, v: Any, g: Any, beta: Any, state: Any) -> tuple[np.ndarray, ...]:
        """All in float64: q scaled, q and k a row for each value head, and the state, zeros where a sequence begins."""
        n, heads = self.value_heads // self.key_heads, np.arange(self.value_heads)
        read = heads % self.key_heads if self.tiled else heads // n
        S = widen(state).copy() if self.past or not len(v) else np.zeros((self.value_heads, self.key_dim, self.value_dim))
        return widen(q)[:, read] * self.scale, widen(k)[:, read], widen(v), widen(g), widen(beta), S

    def magnitude(self, q: Any, k: Any, v: Any, g: Any, beta: Any, state: Any) -> Any:
        """Absolute terms of the state and of what is read of it. What an error does to later corrections is not among them: a key of
        length 1 does not make it larger."""
        q, k, v, g, beta, S = self.widened(q, k, v, g, beta, state)
        sizes, out = np.abs(S), np.empty(v.shape)
        for t in range(len(v)):
            S *= np.exp(g[t])[:, None, None]
            sizes *= np.exp(g[t])[:, None, None]
            met = np.einsum("hkv,hk->hv", S, k[t])
            size = beta[t][:, None] * (np.abs(v[t]) + np.einsum("hkv,hk->hv", np.abs(S), np.abs(k[t])))
            S += k[t][:, :, None] * (beta[t][:, None] * (v[t] - met))[:, None, :]
            sizes += np.abs(k[t])[:, :, None] * size[:, None, :]
            out[t] = np.einsum("hkv,hk->hv", sizes, np.abs(q[t]))
        return sizes, out

    def tolerance(self) -> Tolerance:
        return Tolerance(terms=self.key_dim + self.rows)

    def ops(self) -> int:
        return 7 * self.rows * self.value_heads * self.key_dim * self.value_dim


def drawn(op: Any) -> dict[str, Any]:
    """How inputs are drawn: keys and queries of length 1, gates as models have them."""

    def unit(op: Any, rng: np.random.Generator) -> np.ndarray:
        x = rng.standard_normal((op.rows, op.key_heads, op.key_dim))
        return round_to(x / np.linalg.norm(x, axis=-1, keepdims=True), np.dtype(op.T))

    def fading(op: Any, rng: np.random.Generator) -> np.ndarray:
        return -(10 ** rng.uniform(-3, 0.5, (op.rows, op.value_heads)))

    return dict(q=unit, k=unit, g=fading, normal=("v", "state"))
