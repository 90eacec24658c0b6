"""Qwen2 and Qwen2.5: queries, keys and values have biases."""

from __future__ import annotations

from iron_lm.checkpoints import names
from iron_lm.checkpoints.sources import Names
from iron_lm.decoder_config import DecoderConfig
from iron_lm.family import Family
from iron_lm.parts.attention import Attention
from iron_lm.parts.decoder import Decoder
from iron_lm.parts.embedding import Embedding
from iron_lm.parts.head import Head
from iron_lm.parts.layer import Layer
from iron_lm.parts.mlp import GatedMLP
from iron_lm.parts.norm import Norm
from iron_lm.parts.rotary import Rotary, RotaryConfig
from iron_lm.parts.sliding_decoder import SlidingDecoder
from iron_lm.run import Run


class Qwen2(Family):
    """`iron-run qwen2`."""

    name = "qwen2"
    summary = "Qwen2 and Qwen2.5 models, the dense ones."
    architectures = ("qwen2",)
    absent = {"max_position_embeddings": 32768, "num_key_value_heads": 32, "sliding_window": 4096, "max_window_layers": 28}

    @classmethod
    def names(cls, kind: str, config: DecoderConfig) -> Names:
        return names.GGUF if kind == "gguf" else names.HUGGINGFACE

    @classmethod
    def build(cls, config: DecoderConfig, run: Run) -> Decoder:
        c = config
        assert c.rotary is not None
        embedding, rotary = Embedding(c.embedding(), run), Rotary(c.rotary, run)
        layers = [
            Layer(
                Attention(c.attention(i, bias=True), run, rotary),
                GatedMLP(c.mlp(), run),
                mixer_norm=Norm(c.norm()),
                ffn_norm=Norm(c.norm()),
            )
            for i in range(c.num_layers)
        ]
        graph = SlidingDecoder if any(c.sliding) else Decoder
        return graph(run, embedding, layers, Norm(c.norm()), Head(c.head(), run, embedding if c.tied else None))

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
