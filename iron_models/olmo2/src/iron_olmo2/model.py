"""OLMo 2: norms of what the parts of a layer give alone, and of all heads' queries and keys together."""

from __future__ import annotations

import attrs

from iron_lm.decoder_config import DecoderConfig
from iron_lm.family import Family
from iron_lm.parts.attention import Attention
from iron_lm.parts.layer import Layer
from iron_lm.parts.mlp import GatedMLP
from iron_lm.parts.rotary import Rotary, RotaryConfig
from iron_lm.run import Run


class Olmo2(Family):
    """`iron-run olmo2`."""

    name = "olmo2"
    summary = "OLMo 2 models."
    architectures = ("olmo2",)
    absent = {"max_position_embeddings": 2048, "rms_norm_eps": 1e-5}

    @classmethod
    def layer(cls, config: DecoderConfig, run: Run, i: int, rotary: Rotary | None) -> Layer:
        mixer, ffn = cls.mixer(config, run, i, rotary), GatedMLP(config.mlp(), run)
        return Layer(mixer, ffn, mixer_norm_after=cls.norm(config), ffn_norm_after=cls.norm(config))

    @classmethod
    def mixer(cls, config: DecoderConfig, run: Run, i: int, rotary: Rotary | None) -> Attention:
        """Queries and keys are normed a row at a time, all heads together."""
        queries, keys = (config.norm(heads * config.head_dim) for heads in (config.num_heads, config.num_kv_heads))
        return Attention(attrs.evolve(config.attention(i), q_norm=queries, k_norm=keys), run, rotary)

    @classmethod
    def full_size(cls) -> DecoderConfig:
        """OLMo 2 1B: 16 layers of 2048, 16 heads of 128, vocabulary 100352."""
        return DecoderConfig(
            name="OLMo 2 1B shape",
            vocab_size=100352,
            hidden_size=2048,
            num_layers=16,
            num_heads=16,
            num_kv_heads=16,
            head_dim=128,
            intermediate_size=8192,
            max_positions=4096,
            rotary=RotaryConfig(128, 500000.0),
            norm_epsilon=1e-6,
            tied=False,
        )
