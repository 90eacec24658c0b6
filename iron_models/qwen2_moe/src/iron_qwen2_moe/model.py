"""Qwen2-MoE: Qwen2's attention, and experts by their raw shares beside one that every token goes to."""

from __future__ import annotations

from typing import Any

from iron_lm.checkpoints.entries import Entries
from iron_lm.decoder_config import DecoderConfig
from iron_lm.mixture import Mixture
from iron_lm.mixture_config import MixtureConfig
from iron_lm.parts.attention import Attention
from iron_lm.parts.rotary import Rotary, RotaryConfig
from iron_lm.run import Run


class Qwen2Moe(Mixture):
    """`iron-run qwen2_moe`."""

    name = "qwen2_moe"
    summary = "Qwen1.5-MoE and Qwen2-MoE models."
    architectures = ("qwen2_moe", "qwen2moe")
    shares = True
    absent = {
        "max_position_embeddings": 32768, "num_key_value_heads": 16, "use_sliding_window": False, "sliding_window": 4096,
        "max_window_layers": 28, "num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408,
        "shared_expert_intermediate_size": 5632,
    }  # fmt: skip

    @classmethod
    def from_huggingface(cls, entries: Entries) -> DecoderConfig:
        entries.refuse_unless("qkv_bias", True)
        return super().from_huggingface(entries)

    @classmethod
    def mixer(cls, config: Any, run: Run, i: int, rotary: Rotary | None) -> Attention:
        return Attention(config.attention(i, bias=True), run, rotary)

    @classmethod
    def full_size(cls) -> MixtureConfig:
        """Qwen1.5-MoE-A2.7B: 24 layers of 2048, 16 heads of 128, 60 experts of 1408 and one of 5632, vocabulary 151936."""
        return MixtureConfig(
            name="Qwen1.5-MoE-A2.7B shape",
            vocab_size=151936,
            hidden_size=2048,
            num_layers=24,
            num_heads=16,
            num_kv_heads=16,
            head_dim=128,
            intermediate_size=5632,
            max_positions=8192,
            rotary=RotaryConfig(128, 1000000.0),
            norm_epsilon=1e-6,
            tied=False,
            expert_size=1408,
            num_experts=60,
            chosen=4,
            shared_size=5632,
        )
