"""Qwen3: each head's queries and keys are normed."""

from __future__ import annotations

from iron_lm.decoder_config import DecoderConfig
from iron_lm.family import Family
from iron_lm.parts.attention import Attention
from iron_lm.parts.rotary import Rotary, RotaryConfig
from iron_lm.run import Run


class Qwen3(Family):
    """`iron-run qwen3`."""

    name = "qwen3"
    summary = "Qwen3 models, the dense ones."
    architectures = ("qwen3",)
    absent = {
        "max_position_embeddings": 32768, "num_key_value_heads": 32, "head_dim": 128, "use_sliding_window": False,
        "sliding_window": 4096, "max_window_layers": 28,
    }  # fmt: skip

    @classmethod
    def mixer(cls, config: DecoderConfig, run: Run, i: int, rotary: Rotary | None) -> Attention:
        return Attention(config.attention(i, qk_norm=True), run, rotary)

    @classmethod
    def full_size(cls) -> DecoderConfig:
        """Qwen3 0.6B: 28 layers of 1024, 16 query and 8 KV heads of 128, vocabulary 151936."""
        return DecoderConfig(
            name="Qwen3 0.6B shape",
            vocab_size=151936,
            hidden_size=1024,
            num_layers=28,
            num_heads=16,
            num_kv_heads=8,
            head_dim=128,
            intermediate_size=3072,
            max_positions=40960,
            rotary=RotaryConfig(128, 1000000.0),
            norm_epsilon=1e-6,
        )
