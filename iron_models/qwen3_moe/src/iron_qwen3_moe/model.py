"""Qwen3-MoE: Qwen3's attention, and experts whose weights add up to 1."""

from __future__ import annotations

from typing import Any

from iron_lm.checkpoints.entries import Entries
from iron_lm.decoder_config import DecoderConfig
from iron_lm.mixture import Mixture
from iron_lm.mixture_config import MixtureConfig
from iron_lm.parts.attention import Attention
from iron_lm.parts.rotary import Rotary, RotaryConfig
from iron_lm.run import Run


class Qwen3Moe(Mixture):
    """`iron-run qwen3_moe`."""

    name = "qwen3_moe"
    summary = "Qwen3 models of experts, as Qwen3-30B-A3B."
    architectures = ("qwen3_moe", "qwen3moe")
    renormalises = True
    absent = {
        "max_position_embeddings": 32768, "num_key_value_heads": 4, "use_sliding_window": False, "sliding_window": 4096,
        "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
    }  # fmt: skip

    @classmethod
    def from_huggingface(cls, entries: Entries) -> DecoderConfig:
        entries.refuse_unless("attention_bias", False)
        return super().from_huggingface(entries)

    @classmethod
    def mixer(cls, config: Any, run: Run, i: int, rotary: Rotary | None) -> Attention:
        return Attention(config.attention(i, qk_norm=True), run, rotary)

    @classmethod
    def full_size(cls) -> MixtureConfig:
        """Qwen3-30B-A3B: 48 layers of 2048, 32 query and 4 KV heads of 128, 128 experts of 768, vocabulary 151936."""
        return MixtureConfig(
            name="Qwen3-30B-A3B shape",
            vocab_size=151936,
            hidden_size=2048,
            num_layers=48,
            num_heads=32,
            num_kv_heads=4,
            head_dim=128,
            intermediate_size=6144,
            max_positions=40960,
            rotary=RotaryConfig(128, 1000000.0),
            norm_epsilon=1e-6,
            tied=False,
            expert_size=768,
            num_experts=128,
            chosen=8,
            renormalise=True,
        )
