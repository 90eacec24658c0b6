"""Qwen2 and Qwen2.5: queries, keys and values have biases."""

from __future__ import annotations

from iron_lm.decoder_config import DecoderConfig
from iron_lm.family import Family
from iron_lm.parts.attention import Attention
from iron_lm.parts.rotary import Rotary, RotaryConfig
from iron_lm.run import Run


class Qwen2(Family):
    """`iron-run qwen2`."""

    name = "qwen2"
    summary = "Qwen2 and Qwen2.5 models, the dense ones."
    architectures = ("qwen2",)
    absent = {
        "max_position_embeddings": 32768, "num_key_value_heads": 32, "use_sliding_window": False, "sliding_window": 4096,
        "max_window_layers": 28,
    }  # fmt: skip

    @classmethod
    def mixer(cls, config: DecoderConfig, run: Run, i: int, rotary: Rotary | None) -> Attention:
        return Attention(config.attention(i, bias=True), run, rotary)

    @classmethod
    def full_size(cls) -> DecoderConfig:
        """Qwen2.5 0.5B: 24 layers of 896, 14 query and 2 KV heads of 64, vocabulary 151936."""
        return DecoderConfig(
            name="Qwen2.5 0.5B shape",
            vocab_size=151936,
            hidden_size=896,
            num_layers=24,
            num_heads=14,
            num_kv_heads=2,
            head_dim=64,
            intermediate_size=4864,
            max_positions=32768,
            rotary=RotaryConfig(64, 1000000.0),
            norm_epsilon=1e-6,
        )
