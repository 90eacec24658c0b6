"""Qwen3.5 and Qwen3-Next: most layers mix by the gated delta rule, every fourth attends through gates."""

from __future__ import annotations

from typing import Any

import attrs

from iron_lm.checkpoints.entries import Entries
from iron_lm.checkpoints.names import BUFFERS, IGNORED
from iron_lm.checkpoints.sources import Names
from iron_lm.family import Family
from iron_lm.parts.attention import Attention
from iron_lm.parts.experts import Experts
from iron_lm.parts.gated_delta import GatedDelta
from iron_lm.parts.layer import Layer
from iron_lm.parts.mlp import GatedMLP
from iron_lm.parts.norm import Norm
from iron_lm.parts.part import Part
from iron_lm.parts.rotary import Rotary, RotaryConfig
from iron_lm.run import Run
from iron_qwen3_5 import config as configs
from iron_qwen3_5 import names
from iron_qwen3_5.config import PERIOD, Qwen35Config

#: What else is in a checkpoint: layers that guess further tokens, and the tower of a model that sees.
_BESIDE = (*BUFFERS, "mtp.", "model.visual.")


class Qwen35(Family):
    """`iron-run qwen3_5`."""

    name = "qwen3_5"
    summary = "Qwen3.5's text models, dense and mixtures of experts, and Qwen3-Next."
    architectures = (
        "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_next", "qwen35", "qwen35moe", "qwen3next",
    )  # fmt: skip
    Config = Qwen35Config
    absent = {
        "max_position_embeddings": 32768, "head_dim": 256, "partial_rotary_factor": 0.25, "tie_word_embeddings": False,
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
        "linear_num_key_heads": 16, "linear_num_value_heads": 32,
        "num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
        "norm_topk_prob": True,
    }  # fmt: skip
    ignored = IGNORED | {"safetensors": _BESIDE, "pytorch": _BESIDE}

    @classmethod
    def names(cls, kind: str, config: Qwen35Config) -> Names:
        return names.gguf(config) if kind == "gguf" else names.huggingface(config)

    @classmethod
    def mixer(cls, config: Qwen35Config, run: Run, i: int, rotary: Rotary | None) -> Part:
        if not config.attends[i]:
            return GatedDelta(config.delta(), run)
        return Attention(attrs.evolve(config.attention(i, qk_norm=True), gate=True), run, rotary)

    @classmethod
    def layer(cls, config: Qwen35Config, run: Run, i: int, rotary: Rotary | None) -> Layer:
        experts = config.experts()
        ffn: Part = GatedMLP(config.mlp(), run) if experts is None else Experts(experts, run)
        norms = {name: Norm(config.norm()) for name in ("mixer_norm", "ffn_norm")}
        return Layer(cls.mixer(config, run, i, rotary), ffn, **norms)

    @classmethod
    def from_huggingface(cls, entries: Entries) -> Qwen35Config:
        return Qwen35Config(**configs.from_huggingface(entries))

    @classmethod
    def from_gguf(cls, entries: Entries, tensors: Any) -> Qwen35Config:
        return Qwen35Config(**configs.from_gguf(entries, tensors))

    @classmethod
    def to_huggingface(cls, config: Qwen35Config) -> dict[str, Any]:
        return super().to_huggingface(config) | configs.to_huggingface(config)

    @classmethod
    def full_size(cls) -> Qwen35Config:
        """What transformers' configuration class describes: 32 layers of 4096, 16 query and 4 KV heads of 256, 16 key and 32 value
        heads of 128 in the layers that do not attend, vocabulary 248320."""
        return Qwen35Config(
            name="Qwen3.5 dense shape",
            vocab_size=248320,
            hidden_size=4096,
            num_layers=32,
            num_heads=16,
            num_kv_heads=4,
            head_dim=256,
            intermediate_size=12288,
            max_positions=32768,
            rotary=RotaryConfig(256, 10000000.0, dims=64),
            norm_epsilon=1e-6,
            tied=False,
            attends=tuple((i + 1) % PERIOD == 0 for i in range(32)),
            key_heads=16,
            value_heads=32,
            key_dim=128,
            value_dim=128,
        )
