"""`TextAttention`: attention in both directions whose values are normed too."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_lm.parts.attention import AttentionConfig
from iron_lm.parts.bidirectional import BidirectionalAttention
from iron_lm.parts.norm import Norm, NormConfig
from iron_lm.parts.rotary import Rotary
from iron_lm.run import Run


class TextAttention(BidirectionalAttention):
    """As `BidirectionalAttention`; a head's values are divided by their root mean square. epsilon: of that norm."""

    def __init__(self, config: AttentionConfig, epsilon: float, run: Run, rotary: Rotary) -> None:
        super().__init__(config, run, rotary)
        self.v_norm = Norm(NormConfig(config.head_dim, epsilon, weight=False))

    def projected(self, x: Any, angles: Any) -> tuple[Any, Any, Any, Any]:
        q, k, v, gate = super().projected(x, angles)
        return q, k, self.v_norm(v.reshape(x.shape[0] * self.config.num_kv_heads, self.config.head_dim)), gate

    def attended(self, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
        return super().attended(q, k, self.v_norm.twin({}, v))
