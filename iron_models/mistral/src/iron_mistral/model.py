"""Mistral: every layer slides, where a file names a window."""

from __future__ import annotations

from typing import Any

from iron_lm.checkpoints import gguf_metadata, huggingface
from iron_lm.checkpoints.entries import Entries
from iron_lm.decoder_config import DecoderConfig, windowed
from iron_lm.family import Family
from iron_lm.parts.rotary import RotaryConfig


class Mistral(Family):
    """`iron-run mistral`."""

    name = "mistral"
    summary = "Mistral models, the dense ones."
    architectures = ("mistral", "llama")  # which a GGUF calls it
    absent = {"max_position_embeddings": 131072, "num_key_value_heads": 8, "sliding_window": 4096}

    @classmethod
    def from_huggingface(cls, entries: Entries) -> DecoderConfig:
        """A window that is null is none."""
        entries.refuse_unless("model_type", "mistral")
        window = None if entries.denies("sliding_window") else entries.whole("sliding_window")
        return DecoderConfig(**windowed(huggingface.decoder(entries), window))

    @classmethod
    def from_gguf(cls, entries: Entries, tensors: Any) -> DecoderConfig:
        """llama.cpp's converter writes no window; others may."""
        window = entries.whole("attention.sliding_window") if entries.has("attention.sliding_window") else None
        return DecoderConfig(**windowed(gguf_metadata.decoder(entries, tensors, neighbours=True), window))

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
