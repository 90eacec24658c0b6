"""`VisionAttention`: every patch's queries over the keys of all patches of its image."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_embedding_gemma2.config import VisionConfig
from iron_lm.parts.attention import AttentionConfig
from iron_lm.parts.axial_rotary import AxialRotary
from iron_lm.parts.bidirectional import BidirectionalAttention
from iron_lm.parts.norm import Norm, NormConfig
from iron_lm.run import Run


class VisionAttention(BidirectionalAttention):
    """Attention of patches, whose scores are not scaled: queries and keys are normed a head at a time and turn with their column and
    row; values are normed without a weight."""

    def __init__(self, config: VisionConfig, run: Run, rotary: AxialRotary) -> None:
        c, norm = config, NormConfig(config.head_dim, config.norm_epsilon)
        heads = AttentionConfig(c.hidden_size, c.num_heads, c.num_heads, c.head_dim, scale=1.0, q_norm=norm, k_norm=norm)
        super().__init__(heads, run, rotary)
        self.v_norm = Norm(NormConfig(c.head_dim, c.norm_epsilon, weight=False))

    def projected(self, x: Any, angles: Any) -> tuple[Any, Any, Any, Any]:
        q, k, v, gate = super().projected(x, angles)
        return q, k, self.v_norm(v.reshape(x.shape[0] * self.config.num_kv_heads, self.config.head_dim)), gate

    def attended(self, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
        return super().attended(q, k, self.v_norm.twin({}, v))
