"""Qwen3: the shared decoder with a norm of each head's queries and keys."""

from __future__ import annotations

from iron_lm.causal import Decoder
from iron_lm.checkpoints.checkpoint import Layout
from iron_lm.config import Config
from iron_lm.layouts import QK_NORMS, layout
from iron_lm.runner import Runner


class Qwen3(Decoder):
    """Dense Qwen3 models."""


class Qwen3Runner(Runner):
    """`iron-run qwen3`."""

    name = "qwen3"
    summary = "Qwen3 models, the dense ones."
    architectures = ("qwen3",)
    model = Qwen3
    absent = {
        "max_position_embeddings": 32768, "num_key_value_heads": 32, "head_dim": 128, "sliding_window": 4096, "max_window_layers": 28,
    }  # fmt: skip

    @classmethod
    def layout(cls, kind: str, tied: bool) -> Layout:
        return layout(kind, tied, QK_NORMS)

    @classmethod
    def full_size(cls) -> Config:
        """Qwen3 0.6B: 28 layers of 1024, 16 query and 8 KV heads of 128, vocabulary 151936."""
        return Config(
            name="Qwen3 0.6B shape",
            vocab_size=151936,
            hidden_size=1024,
            num_layers=28,
            num_heads=16,
            num_kv_heads=8,
            head_dim=128,
            intermediate_size=3072,
            max_seq_len=40960,
            rope_base=1000000.0,
            norm_epsilon=1e-6,
            tied=True,
        )
