"""`BidirectionalAttention`: queries over the keys and values of the whole text."""

from __future__ import annotations

from typing import Any

import numpy as np

import iron_core as iron
from iron_lm.parts.attention import Attention, AttentionConfig
from iron_lm.parts.axial_rotary import AxialRotary
from iron_lm.parts.part import bounded
from iron_lm.parts.rotary import Rotary
from iron_lm.run import Run
from iron_ops_aie import MHA


class BidirectionalAttention(Attention):
    """Attention of each row over all rows of a call, before it and after. x: (rows, hidden_size), and the same shape comes out.

    spans (rows, 2), of several texts behind one another: of each row the first one of its text and the one behind the last.
    `reach` of its config is a radius: a query sees the keys at most that many places away, on either side. There is no cache.
    """

    def __init__(self, config: AttentionConfig, run: Run, rotary: Rotary | AxialRotary | None = None) -> None:
        super().__init__(config, run, rotary)
        self.cache = None  # type: ignore[assignment]  # nothing is kept from one call to the next

    def body(  # type: ignore[override]  # no place
        self, x: Any, angles: Any = None, spans: Any = None, *, rows: iron.Scratchpad[np.int32]
    ) -> Any:
        c, n = self.config, x.shape[0]
        q, k, v, gate = self.projected(bounded(x, rows), bounded(angles, rows))
        k, v = (y.reshape(n, c.num_kv_heads, c.head_dim) for y in (k, v))
        texts = {} if spans is None else {"spans": bounded(spans, rows)}
        o = MHA(self.by_heads(q), k, v, heads_interleaved=True, kv_interleaved=True, causal=False, **self.scoring, **texts)
        return self.opened(o, gate)

    def seen(self, n: int) -> np.ndarray:
        away = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
        return away <= (n if self.config.reach is None else self.config.reach)
