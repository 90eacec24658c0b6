"""Llama, and the models built like it."""

from __future__ import annotations

from typing import Any

from iron_lm.checkpoints import gguf_metadata, meta_params
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.checkpoints.entries import Entries
from iron_lm.checkpoints.sources import Names
from iron_lm.decoder_config import DecoderConfig
from iron_lm.family import Family
from iron_lm.parts.rotary import RotaryConfig

#: The names of Meta's own checkpoints.
META = {
    "embedding.table": "tok_embeddings.weight",
    "norm.weight": "norm.weight",
    "head.matrix": "output.weight",
    "layers.{i}.mixer_norm.weight": "layers.{i}.attention_norm.weight",
    **{f"layers.{{i}}.mixer.{x}": f"layers.{{i}}.attention.w{x}.weight" for x in "qkvo"},
    "layers.{i}.ffn_norm.weight": "layers.{i}.ffn_norm.weight",
    "layers.{i}.ffn.gate": "layers.{i}.feed_forward.w1.weight",
    "layers.{i}.ffn.up": "layers.{i}.feed_forward.w3.weight",
    "layers.{i}.ffn.down": "layers.{i}.feed_forward.w2.weight",
}


class Llama(Family):
    """`iron-run llama`."""

    name = "llama"
    summary = "Llama-architecture models: Llama 3.2, SmolLM2 and their kin."
    architectures = ("llama",)
    absent = {"max_position_embeddings": 2048}

    @classmethod
    def names(cls, kind: str, config: DecoderConfig) -> Names:
        return META if kind == "meta" else super().names(kind, config)

    @classmethod
    def from_gguf(cls, entries: Entries, tensors: Any) -> DecoderConfig:
        return DecoderConfig(**gguf_metadata.decoder(entries, tensors, neighbours=True))

    @classmethod
    def described(cls, checkpoint: Checkpoint) -> tuple[DecoderConfig, Entries]:
        if checkpoint.kind != "meta":
            return super().described(checkpoint)
        entries = meta_params.entries_of(checkpoint.metadata["params"])
        return DecoderConfig(**meta_params.decoder(entries, checkpoint.tensors)), entries

    @classmethod
    def full_size(cls) -> DecoderConfig:
        """Llama 3.2 1B: 16 layers of 2048, 32 query and 8 KV heads of 64, vocabulary 128256."""
        return DecoderConfig(
            name="Llama 3.2 1B shape",
            vocab_size=128256,
            hidden_size=2048,
            num_layers=16,
            num_heads=32,
            num_kv_heads=8,
            head_dim=64,
            intermediate_size=8192,
            max_positions=131072,
            rotary=RotaryConfig(64, 500000.0, ("llama3", (32.0, 1.0, 4.0, 8192.0))),
            norm_epsilon=1e-5,
        )
