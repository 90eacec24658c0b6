"""Llama: the shared decoder as it is."""

from __future__ import annotations

from iron_llama.layout import layout
from iron_lm.causal import Decoder
from iron_lm.checkpoints.checkpoint import Layout
from iron_lm.config import Config
from iron_lm.runner import Runner


class Llama(Decoder):
    """Llama-architecture decoders: Llama 3.2, SmolLM2 and their kin."""


class LlamaRunner(Runner):
    """`iron-run llama`."""

    name = "llama"
    summary = "Llama-architecture models: Llama 3.2, SmolLM2 and their kin."
    architectures = ("llama",)
    model = Llama
    absent = {"max_position_embeddings": 2048}

    @classmethod
    def layout(cls, kind: str, tied: bool) -> Layout:
        return layout(kind, tied)

    @classmethod
    def full_size(cls) -> Config:
        """Llama 3.2 1B: 16 layers of 2048, 32 query and 8 KV heads of 64, vocabulary 128256."""
        return Config(
            name="Llama 3.2 1B shape",
            vocab_size=128256,
            hidden_size=2048,
            num_layers=16,
            num_heads=32,
            num_kv_heads=8,
            head_dim=64,
            intermediate_size=8192,
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
