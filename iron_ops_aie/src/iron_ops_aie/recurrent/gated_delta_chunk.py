"""`GatedDeltaChunk`: the gated delta rule, a chunk of tokens at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import Case, Param, Testing, Tolerance
from iron_core.errors import ParamError
from iron_ops_aie.recurrent.delta_rule import DeltaRule, drawn

#: Tokens of a chunk at most: what a kernel keeps of one.
MOST = 64


class GatedDeltaChunk(DeltaRule):
    """The gated delta rule of `DeltaRule`, `chunk` tokens at a time: products of matrices, between which a unit lower triangular system
    is solved for what the tokens of a chunk correct. With b the sums of g from the chunk's first token on, and S what was before it:

        (I + tril(beta K K^T e^(b_t - b_s), -1)) U = beta (V - e^(b_t) K S)
        O = e^(b_t) Q S + tril(Q K^T e^(b_t - b_s)) U
        S = e^(b_n) S + (e^(b_n - b_s) K)^T U

    It is GatedDeltaStep's result, rounded otherwise. A token's numbers follow from the tokens before it in its chunk, not from those
    behind it; chunks are counted from the call's first row. Errors: ParamError also for a chunk of more than 64 tokens.
    """

    chunk: int = Param(default=MOST)

    test = Testing(
        Case(rows=1, key_heads=2, value_heads=4, key_dim=16, value_dim=16, lower=True),
        Case(rows=6, key_heads=3, value_heads=6, key_dim=8, value_dim=40, tiled=True, bounds=dict(valid=4, past=3), chunk=4, lower=True),
        Case(rows=20, key_heads=1, value_heads=2, key_dim=32, value_dim=32, bounds=dict(past=0), chunk=4, lower=True),
        Case(rows=2, key_heads=1, value_heads=2, key_dim=128, value_dim=128, lower=True),
        Case(rows=3, key_heads=1, value_heads=3, key_dim=64, value_dim=64, num_aie_columns=3, lower=True),
        Case(rows=9, key_heads=3, value_heads=6, key_dim=7, value_dim=33, tiled=True, chunk=4, T=np.float32),
        Case(rows=70, key_heads=1, value_heads=2, key_dim=32, value_dim=16, T=np.float32, bounds=dict(valid=67, past=0)),
        Case(rows=130, key_heads=1, value_heads=1, key_dim=64, value_dim=32, scale=1.0, T=np.float16),
        Case(rows=64, key_heads=16, value_heads=32, key_dim=128, value_dim=128, T=np.float32, bench=True),
        draw=drawn,
    )

    def validate(self) -> None:
        super().validate()
        if not 1 <= self.chunk <= MOST:
            raise ParamError(f"GatedDeltaChunk: chunk={self.chunk}; legal: 1 to {MOST}.")

    def reference(self, q: Any, k: Any, v: Any, g: Any, beta: Any, state: Any) -> Any:
        q, k, v, g, beta, S = self.widened(q, k, v, g, beta, state)
        out = np.empty(v.shape)
        for start in range(0, len(v), self.chunk):
            part = slice(start, start + self.chunk)
            for h in range(self.value_heads):
                out[part, h], S[h] = _chunk(q[part, h], k[part, h], v[part, h], g[part, h], beta[part, h], S[h])
        return S, out

    def tolerance(self) -> Tolerance:
        # What a token corrects is a sum over those before it, and so is what is read; decays are exponentials of sums of `chunk` terms.
        return Tolerance(terms=self.key_dim + self.rows + 4 * min(self.chunk, self.rows))


def _chunk(q: np.ndarray, k: np.ndarray, v: np.ndarray, g: np.ndarray, beta: np.ndarray, S: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One head's outputs, and its state behind them."""
    b = np.cumsum(g)
    decay = np.tril(np.exp(np.minimum(b[:, None] - b, 0)))
    grown = np.exp(b)[:, None]
    system = np.eye(len(b)) + np.tril(beta[:, None] * (k @ k.T) * decay, -1)
    u = np.linalg.solve(system, beta[:, None] * (v - grown * (k @ S)))
    return grown * (q @ S) + (q @ k.T * decay) @ u, np.exp(b[-1]) * S + (k * np.exp(b[-1] - b)[:, None]).T @ u
