"""`MHA`: attention of several heads, over a prompt or over a cache."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from iron_core import (
    Auto,
    Case,
    Choices,
    DType,
    Extent,
    In,
    Level,
    Operator,
    Out,
    Param,
    Pins,
    Placement,
    Select,
    Testing,
    Tolerance,
    Value,
    Width,
    bfloat16,
    widen,
)
from iron_core.errors import ParamError
from iron_ops_aie.attention.kernels_mha import EXP2, STATES
from iron_ops_aie.attention.mha_array import BLOCKS, PV_CORES, MHAArray, blocks_of_keys
from iron_ops_aie.attention.rules import check_scores
from iron_ops_aie.rules import floats_only

_INTERLEAVED: dict[str, Any] = dict(heads_interleaved=True, kv_interleaved=True)


class MHA(MHAArray, Operator):
    """O[h] = softmax(scale * Q[h] K[h // g]^T + bias[h] + mask) V[h // g], g = num_heads / num_KV_heads. `soft_cap` c bends the
    scores s, bias and all, to within it, c tanh(s / c), before they are masked.

    Q, O: (num_heads, seq_len, d), or (seq_len, num_heads, d) with `heads_interleaved`. K, V: (num_KV_heads, kv_len, d),
    or (kv_len, num_KV_heads, d) with `kv_interleaved`. bias, with `biased`: (num_heads, seq_len, kv_len), finite numbers, of
    which those of keys that a query does not see count for nothing. Terms for each distance, as relative keys give them, make one:
    those of query r lie r places further on in its row. The queries are the last rows of the keys: query r of n stands at
    position m - n + r of m keys. `causal` keeps keys at or before it; `window` w keeps |key - query| <= w, and spans, with
    `spanned`, of each query the keys from its first number up to its second: rows of several texts behind one another. Per call,
    `valid` bounds the queries and `kv_valid` the keys. A row that sees no key is zero.

    K and V may be stored in another dtype (`C`) than the activations (`T`).

    On an array (bfloat16 alone), `num_pipelines` of three cores each take blocks of `B_q` queries over blocks of as many keys; one
    query, its heads instead. Under `kv_valid` only the blocks that hold keys are moved. `pv_cores` 2 shares a head's values between
    two cores, for heads that one has no room for. `placement` fixes every tile ("tiles"), or leaves the shims ("memtiles") and the
    memory tiles ("columns") to the placer. `exp2` "accurate" is a polynomial, "fast" AIE2P's instruction, up to 6 % too high.
    `state` is the dtype that the softmax's running maximum and sum, and the sums of values, are kept in.

    Errors: ParamError for heads that do not divide, more queries than keys under a mask, a window below 1, a negative
    scale, a soft_cap that is not from 2^-100 to 2^100, an exp2 or state that there is not, integers; Unresolvable where an array
    does not take the shape.
    """

    num_heads: int = Param()
    num_KV_heads: int = Param(default=lambda op: op.num_heads)
    seq_len: int = Param()
    kv_len: int = Param(default=lambda op: op.seq_len)
    d: int = Param(default=64)
    heads_interleaved: bool = Param(default=False)
    kv_interleaved: bool = Param(default=False)
    causal: bool = Param(default=True, array=True)
    window: Any = Param(default=None, array=True)
    scale: float = Param(default=lambda op: 1 / math.sqrt(max(1, op.d)), array=True)
    soft_cap: Any = Param(default=None, array=True)
    biased: bool = Param(default=False, array=True)
    spanned: bool = Param(default=False, array=True)
    exp2: str = Param(default="accurate", array=True)
    state: str = Param(default="float32", array=True)
    T: Any = DType(default=bfloat16)
    C: Any = DType(default=lambda op: op.T)
    B_q: int = Auto(domain=Choices(BLOCKS))
    num_pipelines: int = Auto(array=True, domain=Width())
    pv_cores: int = Auto(array=True, domain=Choices(PV_CORES))
    placement: str = Auto(
        array=True,
        domain=Placement(
            {
                "tiles": Pins(),
                "memtiles": Pins(cores=Level.COLUMN, shims=Level.FREE),
                "columns": Pins(cores=Level.COLUMN, memtiles=Level.FREE, shims=Level.FREE),
            }
        ),
    )
    packed: bool = Auto(array=True, derived=True, repr=False)
    q_lanes: int = Auto(derived=True, repr=False)
    kv_lanes: int = Auto(derived=True, repr=False)
    bias_lanes: int = Auto(derived=True, repr=False)
    o_rows: int = Auto(derived=True, repr=False)
    pv_width: int = Auto(derived=True, repr=False)
    Q = In(Select(heads_interleaved, (seq_len, num_heads, d), (num_heads, seq_len, d)), dtype=T, tile=(B_q, d), per=q_lanes)
    K = In(Select(kv_interleaved, (kv_len, num_KV_heads, d), (num_KV_heads, kv_len, d)), dtype=C, tile=(B_q, d), per=kv_lanes)
    V = In(
        Select(kv_interleaved, (kv_len, num_KV_heads, d), (num_KV_heads, kv_len, d)),
        dtype=C,
        tile=(B_q, pv_width),
        per=(kv_lanes, pv_cores),
    )
    bias = In(num_heads, seq_len, kv_len, dtype=T, when=biased, tile=(o_rows, B_q), per=bias_lanes)
    spans = In(seq_len, 2, dtype=np.int32, when=spanned)
    O = Out(  # noqa: E741
        Select(heads_interleaved, (seq_len, num_heads, d), (num_heads, seq_len, d)),
        dtype=T,
        tile=(o_rows, pv_width),
        per=(q_lanes, pv_cores),
    )
    valid = Extent(seq_len)
    kv_valid = Extent(kv_len)
    passes = Value(derive=lambda op: op.num_KV_heads // op.num_pipelines if op.packed else op.num_heads)
    rounds = Value(derive=lambda op: 1 if op.packed else op.seq_len // (op.B_q * op.num_pipelines))
    queries = Value(derive=lambda op: op.valid)
    keys = Value(derive=lambda op: op.kv_valid)
    kv_blocks = Value(derive=blocks_of_keys, optional=True)

    test = Testing(
        Case(num_heads=2, seq_len=64, d=64, lower=True),
        Case(num_heads=6, num_KV_heads=2, seq_len=64, kv_len=128, **_INTERLEAVED, bounds=dict(valid=19, kv_valid=83), lower=True),
        Case(num_heads=6, num_KV_heads=2, seq_len=19, kv_len=83, T=np.float32, **_INTERLEAVED),
        Case(num_heads=4, seq_len=40, d=32, causal=False, T=np.float32),
        Case(num_heads=4, num_KV_heads=1, seq_len=70, d=64, window=16, T=np.float32),
        Case(num_heads=4, num_KV_heads=4, seq_len=33, d=16, window=5, causal=False, T=np.float32),
        Case(num_heads=9, num_KV_heads=3, seq_len=1, kv_len=200, T=np.float32, C=np.float16, **_INTERLEAVED),
        Case(num_heads=9, num_KV_heads=3, seq_len=1, kv_len=200, **_INTERLEAVED),
        Case(num_heads=9, num_KV_heads=3, seq_len=64, kv_len=256, T=np.float32, C=np.float16, **_INTERLEAVED, bench=True),
        Case(num_heads=2, seq_len=8, kv_len=24, d=128, scale=1.0, T=np.float32),
        Case(num_heads=6, num_KV_heads=2, seq_len=37, kv_len=101, window=50, soft_cap=0.5, T=np.float32, **_INTERLEAVED),
        Case(num_heads=9, num_KV_heads=3, seq_len=1, kv_len=200, soft_cap=0.5, **_INTERLEAVED),
        Case(num_heads=6, num_KV_heads=2, seq_len=37, kv_len=101, biased=True, T=np.float32, **_INTERLEAVED),
        Case(num_heads=4, num_KV_heads=2, seq_len=20, kv_len=50, causal=False, spanned=True, T=np.float32, **_INTERLEAVED),
        Case(num_heads=4, num_KV_heads=2, seq_len=1, kv_len=90, biased=True, soft_cap=5.0, T=np.float32, C=np.float16),
        Case(num_heads=6, num_KV_heads=2, seq_len=64, kv_len=96, **_INTERLEAVED, lower=True),
        Case(num_heads=2, seq_len=32, kv_len=64, d=128, causal=False, lower=True),
        Case(num_heads=2, seq_len=32, kv_len=80, window=20, lower=True),
        Case(num_heads=9, num_KV_heads=3, seq_len=1, kv_len=208, **_INTERLEAVED, lower=True),
        Case(num_heads=4, num_KV_heads=2, seq_len=1, kv_len=64, d=128, lower=True),
        Case(num_heads=2, num_KV_heads=1, seq_len=48, kv_len=64, soft_cap=5.0, lower=True),
        Case(num_heads=2, seq_len=32, kv_len=64, d=128, window=11, biased=True, soft_cap=5.0, lower=True),
        Case(num_heads=6, num_KV_heads=2, seq_len=1, kv_len=80, biased=True, **_INTERLEAVED, lower=True),
        Case(num_heads=1, seq_len=16, kv_len=48, d=512, lower=True),
        Case(num_heads=2, num_KV_heads=1, seq_len=1, kv_len=48, d=512, lower=True),
        Case(num_heads=2, seq_len=32, pv_cores=2, state="bfloat16", lower=True),
        Case(num_heads=2, seq_len=32, kv_len=48, d=32, causal=False, bounds=dict(valid=19, kv_valid=41), lower=True),
        draw=dict(normal=("Q", "K", "V", "bias")),
    )

    def validate(self) -> None:
        floats_only(self, "T", "C")
        check_scores(self)
        if (self.causal or self.window is not None) and self.seq_len > self.kv_len:
            raise ParamError(f"MHA: seq_len={self.seq_len} queries are the last of kv_len={self.kv_len} keys; there are too few keys.")
        if self.spanned and (self.causal or self.biased):
            raise ParamError(f"MHA: spans, and causal={self.causal}, biased={self.biased}; legal: spans alone, with causal=False.")
        for field, legal in (("exp2", EXP2), ("state", tuple(STATES))):
            if getattr(self, field) not in legal:
                raise ParamError(f"MHA: {field}={getattr(self, field)!r}; legal: {', '.join(legal)}.")

    def _operands(self, Q: Any, K: Any, V: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        q, k, v = widen(Q), widen(K), widen(V)
        if self.heads_interleaved:
            q = q.swapaxes(0, 1)
        if self.kv_interleaved:
            k, v = k.swapaxes(0, 1), v.swapaxes(0, 1)
        group = self.num_heads // self.num_KV_heads
        return q, np.repeat(k, group, 0), np.repeat(v, group, 0)

    def _weights(self, q: np.ndarray, k: np.ndarray, bias: Any, spans: Any) -> np.ndarray:
        """Softmax weights (heads, queries, keys); zero where masked, a whole row zero where nothing is seen."""
        scores = q @ k.swapaxes(1, 2) * self.scale
        if bias is not None:
            scores = scores + widen(bias)
        if self.soft_cap is not None:
            scores = self.soft_cap * np.tanh(scores / self.soft_cap)
        queries, keys = scores.shape[1:]
        seen = self._seen(np.arange(queries)[:, None] + (keys - queries), np.arange(keys)[None], keys)
        if spans is not None:
            first, last = np.asarray(spans, np.int64).T[..., None]
            seen = seen & (np.arange(keys) >= first) & (np.arange(keys) < last)
        scores = np.where(seen, scores, -np.inf)
        top = scores.max(-1, keepdims=True, initial=-np.inf)
        weights = np.exp(scores - np.where(np.isfinite(top), top, 0.0))
        total = weights.sum(-1, keepdims=True)
        return weights / np.where(total > 0, total, 1.0)

    def reference(self, Q: Any, K: Any, V: Any, bias: Any = None, spans: Any = None) -> Any:
        q, k, v = self._operands(Q, K, V)
        out = self._weights(q, k, bias, spans) @ v
        return out.swapaxes(0, 1) if self.heads_interleaved else out

    def magnitude(self, Q: Any, K: Any, V: Any, bias: Any = None, spans: Any = None) -> Any:
        """Absolute terms of the weighted sum, widened by how much a score's own rounding moves its weight, and by weights
        below the smallest normal number, which may come out as zero."""
        q, k, v = self._operands(Q, K, V)
        parts = np.abs(q) @ np.abs(k).swapaxes(1, 2) * self.scale + (0.0 if bias is None else np.abs(widen(bias)))
        spread = parts.max(-1, keepdims=True, initial=0.0)
        out = self._weights(q, k, bias, spans) @ np.abs(v) * (1 + 2 * spread)
        out += 2.0**-104 * np.abs(v).sum(1, keepdims=True)
        return out.swapaxes(0, 1) if self.heads_interleaved else out

    def tolerance(self) -> Tolerance:
        # A cap's quotient, tanh and product, each rounded; tanh in float32 is good to a few units.
        return Tolerance(terms=self.d + self.kv_len + (0 if self.soft_cap is None else 8))

    def ops(self) -> int:
        return 4 * self.num_heads * self.seq_len * self.kv_len * self.d
