"""Phi-3: a llama whose matrices are fused in its files, with a window on every layer or on none."""

from __future__ import annotations

from typing import Any

from iron_lm.checkpoints import gguf_metadata, huggingface, names
from iron_lm.checkpoints.entries import Entries
from iron_lm.checkpoints.sources import Names, Split
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
        found = names.GGUF if kind == "gguf" else names.HUGGINGFACE
        qkv, gate_up = FUSED["gguf" if kind == "gguf" else "safetensors"]
        keys, wide = c.num_kv_heads * c.head_dim, c.intermediate_size
        rows = (c.num_heads * c.head_dim, keys, keys)
        split = {f"layers.{{i}}.mixer.{x}": Split(qkv, rows, part) for part, x in enumerate("qkv")}
        split |= {f"layers.{{i}}.ffn.{x}": Split(gate_up, (wide, wide), part) for part, x in enumerate(("gate", "up"))}
        return found | split

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
        window = entries.whole("sliding_window") if entries.has("sliding_window") else None
        return DecoderConfig(**_windowed(huggingface.decoder(entries), window))

    @classmethod
    def from_gguf(cls, entries: Entries, tensors: Any) -> DecoderConfig:
        """llama.cpp's converter writes a window of 0 for none."""
        key = "attention.sliding_window"
        window = entries.whole(key) if entries.entries.get(entries.prefix + key) else None
        return DecoderConfig(**_windowed(gguf_metadata.decoder(entries, tensors), window))

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


def _windowed(found: dict[str, Any], window: int | None) -> dict[str, Any]:
    """Every layer slides where there is a window."""
    return found | dict(window=window, sliding=() if window is None else (True,) * found["num_layers"])
