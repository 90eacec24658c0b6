"""Phi-3: a llama whose matrices are fused in its files, with a window on every layer or on none."""

from __future__ import annotations

from typing import Any

from iron_lm.checkpoints import gguf_metadata, huggingface
from iron_lm.checkpoints.entries import Entries
from iron_lm.checkpoints.sources import Names, Split
from iron_lm.decoder_config import DecoderConfig, windowed
from iron_lm.family import Family
from iron_lm.parts.rotary import RotaryConfig

#: The tensors that hold several matrices, by kind of checkpoint: queries, keys and values; gate and up.
FUSED = {
    "safetensors": ("model.layers.{i}.self_attn.qkv_proj.weight", "model.layers.{i}.mlp.gate_up_proj.weight"),
    "gguf": ("blk.{i}.attn_qkv.weight", "blk.{i}.ffn_up.weight"),
}


class Phi3(Family):
    """`iron-run phi3`."""

    name = "phi3"
    summary = "Phi-3, Phi-3.5 and Phi-4 models."
    architectures = ("phi3",)
    absent = {"max_position_embeddings": 4096, "original_max_position_embeddings": 4096, "rms_norm_eps": 1e-5}

    @classmethod
    def names(cls, kind: str, config: DecoderConfig) -> Names:
        c = config
        qkv, gate_up = FUSED["gguf" if kind == "gguf" else "safetensors"]
        keys, wide = c.num_kv_heads * c.head_dim, c.intermediate_size
        rows = (c.num_heads * c.head_dim, keys, keys)
        split = {f"layers.{{i}}.mixer.{x}": Split(qkv, rows, part) for part, x in enumerate("qkv")}
        split |= {f"layers.{{i}}.ffn.{x}": Split(gate_up, (wide, wide), part) for part, x in enumerate(("gate", "up"))}
        return {**super().names(kind, config), **split}

    @classmethod
    def from_huggingface(cls, entries: Entries) -> DecoderConfig:
        window = entries.whole("sliding_window") if entries.has("sliding_window") else None
        return DecoderConfig(**windowed(huggingface.decoder(entries), window))

    @classmethod
    def from_gguf(cls, entries: Entries, tensors: Any) -> DecoderConfig:
        """llama.cpp's converter writes a window of 0 for none."""
        key = "attention.sliding_window"
        window = entries.whole(key) if entries.entries.get(entries.prefix + key) else None
        return DecoderConfig(**windowed(gguf_metadata.decoder(entries, tensors), window))

    @classmethod
    def full_size(cls) -> DecoderConfig:
        """Phi-3 mini 4k: 32 layers of 3072, 32 heads of 96, vocabulary 32064."""
        return DecoderConfig(
            name="Phi-3 mini 4k shape",
            vocab_size=32064,
            hidden_size=3072,
            num_layers=32,
            num_heads=32,
            num_kv_heads=32,
            head_dim=96,
            intermediate_size=8192,
            max_positions=4096,
            rotary=RotaryConfig(96),
            norm_epsilon=1e-5,
            window=2047,
            sliding=(True,) * 32,
            tied=False,
        )
