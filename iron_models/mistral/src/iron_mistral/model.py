"""Mistral: every layer slides, where a file names a window."""

from __future__ import annotations

from typing import Any

from iron_lm.checkpoints import gguf_metadata, huggingface, names
from iron_lm.checkpoints.entries import Entries
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


class Mistral(Family):
    """`iron-run mistral`."""

    name = "mistral"
    summary = "Mistral models, the dense ones."
    architectures = ("mistral", "llama")  # which a GGUF calls it
    absent = {"max_position_embeddings": 131072, "num_key_value_heads": 8, "sliding_window": 4096}

    @classmethod
    def names(cls, kind: str, config: DecoderConfig) -> Names:
        return names.GGUF if kind == "gguf" else names.HUGGINGFACE

    @classmethod
    def build(cls, config: DecoderConfig, run: Run) -> Decoder:
        c = config
        assert c.rotary is not None
        embedding, rotary = Embedding(c.embedding(), run), Rotary(c.rotary, run)
        layers = [
            Layer(Attention(c.attention(i), run, rotary), GatedMLP(c.mlp(), run), mixer_norm=Norm(c.norm()), ffn_norm=Norm(c.norm()))
            for i in range(c.num_layers)
        ]
        graph = SlidingDecoder if any(c.sliding) else Decoder
        return graph(run, embedding, layers, Norm(c.norm()), Head(c.head(), run, embedding if c.tied else None))

    @classmethod
    def from_huggingface(cls, entries: Entries) -> DecoderConfig:
        """A window that is null is none."""
        entries.refuse_unless("model_type", "mistral")
        found = huggingface.decoder(entries)
        return _slid(found, None if entries.denies("sliding_window") else entries.whole("sliding_window"))

    @classmethod
    def from_gguf(cls, entries: Entries, tensors: Any) -> DecoderConfig:
        """llama.cpp's converter writes no window; others may."""
        found = gguf_metadata.decoder(entries, tensors, neighbours=True)
        return _slid(found, entries.whole("attention.sliding_window") if entries.has("attention.sliding_window") else None)

    @classmethod
    def full_size(cls) -> DecoderConfig:
        """Mistral 7B: 32 layers of 4096, 32 query and 8 KV heads of 128, vocabulary 32000."""
        return DecoderConfig(
            name="Mistral 7B shape",
            vocab_size=32000,
            hidden_size=4096,
            num_layers=32,
            num_heads=32,
            num_kv_heads=8,
            head_dim=128,
            intermediate_size=14336,
            max_positions=32768,
            rotary=RotaryConfig(128, 10000.0),
            norm_epsilon=1e-5,
            window=4096,
            sliding=(True,) * 32,
            tied=False,
        )


def _slid(found: dict[str, Any], window: int | None) -> DecoderConfig:
    """The config of what was found, every layer sliding where there is a window."""
    sliding = () if window is None else (True,) * found["num_layers"]
    return DecoderConfig(**found | dict(window=window, sliding=sliding))
