"""`GatedDeltaStep`: the gated delta rule, one token after another."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import Case, Testing
from iron_ops_aie.recurrent.delta_rule import DeltaRule, drawn


class GatedDeltaStep(DeltaRule):
    """The gated delta rule of `DeltaRule`, one token after another: a token's numbers are the same in any company. The state is read
    and written once a call, whatever its rows."""

    test = Testing(
        Case(rows=1, key_heads=2, value_heads=4, key_dim=16, value_dim=16, lower=True),
        Case(rows=6, key_heads=3, value_heads=6, key_dim=8, value_dim=40, tiled=True, bounds=dict(valid=4, past=3), lower=True),
        Case(rows=20, key_heads=1, value_heads=2, key_dim=32, value_dim=32, bounds=dict(past=0), lower=True),
        Case(rows=2, key_heads=1, value_heads=2, key_dim=128, value_dim=128, lower=True),
        Case(rows=3, key_heads=1, value_heads=3, key_dim=64, value_dim=64, num_aie_columns=3, lower=True),
        Case(rows=5, key_heads=2, value_heads=4, key_dim=16, value_dim=40, T=np.float32),
        Case(rows=9, key_heads=3, value_heads=6, key_dim=7, value_dim=33, tiled=True, T=np.float32, bounds=dict(valid=4, past=3)),
        Case(rows=3, key_heads=1, value_heads=1, key_dim=64, value_dim=32, scale=1.0, T=np.float16, bounds=dict(past=0)),
        Case(rows=1, key_heads=16, value_heads=32, key_dim=128, value_dim=128, bench=True),
        Case(rows=64, key_heads=16, value_heads=32, key_dim=128, value_dim=128, T=np.float32, bench=True),
        draw=drawn,
    )

    def reference(self, q: Any, k: Any, v: Any, g: Any, beta: Any, state: Any) -> Any:
        q, k, v, g, beta, S = self.widened(q, k, v, g, beta, state)
        out = np.empty(v.shape)
        for t in range(len(v)):
            S *= np.exp(g[t])[:, None, None]
            u = beta[t][:, None] * (v[t] - np.einsum("hkv,hk->hv", S, k[t]))
            S += k[t][:, :, None] * u[:, None, :]
            out[t] = np.einsum("hkv,hk->hv", S, q[t])
        return S, out
