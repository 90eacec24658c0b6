"""Llama: the shared decoder with llama's head."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_llama.layout import layout
from iron_lm.blocks import Block, project
from iron_lm.causal import CausalLM
from iron_lm.checkpoint import Layout
from iron_lm.config import Config
from iron_lm.runner import Runner
from iron_ops_aie import RMSNorm


class Llama(Block, CausalLM):
    """Llama-architecture decoders: Llama 3.2, SmolLM2 and their kin."""

    def head(self, x: Any) -> Any:
        """The final norm, then the head, which is the embedding where the checkpoint ties them."""
        y = RMSNorm(x, weight=self.norm, epsilon=self.config.norm_epsilon)
        table = self.embedding if self.head_weight is None else self.head_weight
        return project(y, table, self.config.activations, out=np.float32)


class LlamaRunner(Runner):
    """`iron-run llama`."""

    name = "llama"
    summary = "Llama-architecture models: Llama 3.2, SmolLM2 and their kin."
    architectures = ("llama",)
    model = Llama

    @classmethod
    def layout(cls, kind: str, tied: bool) -> Layout:
        return layout(kind, tied)

    @classmethod
    def full_size(cls) -> Config:
        """Llama 3.2 1B: 16 layers of 2048, 32 query and 8 KV heads of 64, vocabulary 128256."""
        return Config(
            name="Llama 3.2 1B shape",
            vocab_size=128256,
            emb_dim=2048,
            n_layers=16,
            n_heads=32,
            n_kv_groups=8,
            head_dim=64,
            hidden_dim=8192,
            max_seq_len=131072,
            rope_base=500000.0,
            rope_scaling={
                "rope_type": "llama3",
                "factor": 32.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192,
            },
            norm_epsilon=1e-5,
            tied=True,
        )
