"""Llama: the shared decoder with llama's head."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_lm.blocks import Block, project
from iron_lm.causal import CausalLM
from iron_ops_aie import RMSNorm


class Llama(Block, CausalLM):
    """Llama-architecture decoders: Llama 3.2, SmolLM2 and their kin."""

    def head(self, x: Any) -> Any:
        """The final norm, then the head, which is the embedding where the checkpoint ties them."""
        y = RMSNorm(x, weight=self.norm, epsilon=self.config.norm_epsilon)
        table = self.embedding if self.head_weight is None else self.head_weight
        return project(y, table, self.config.activations, out=np.float32)
