"""Gemma 3: the shared decoder with norms around every part, windows on most layers, and a scaled embedding."""

from __future__ import annotations

import math
from typing import Any

from iron_lm.causal import Decoder
from iron_lm.checkpoints.checkpoint import Layout
from iron_lm.checkpoints.entries import Entries
from iron_lm.config import Config, every_nth_is_full
from iron_lm.layouts import QK_NORMS, layout
from iron_lm.runner import Runner

#: Every sixth layer sees everything, where a file does not say which do.
PERIOD = 6
#: The rotary base of the layers that slide, where a GGUF does not say it.
LOCAL_BASE = 10000.0
#: A GGUF does not say how scores are scaled; the 27B, known by its layers, divides by another root than the others.
LAYERS_OF_27B = 62

_NORMS = {
    "safetensors": {
        "layers.{i}.post_attention_norm": "model.layers.{i}.post_attention_layernorm.weight",
        "layers.{i}.ffn_norm": "model.layers.{i}.pre_feedforward_layernorm.weight",
        "layers.{i}.post_ffn_norm": "model.layers.{i}.post_feedforward_layernorm.weight",
    },
    "gguf": {
        "layers.{i}.post_attention_norm": "blk.{i}.post_attention_norm.weight",
        "layers.{i}.post_ffn_norm": "blk.{i}.post_ffw_norm.weight",
    },
}


class Gemma3(Decoder):
    """Gemma 3's text models."""


class Gemma3Runner(Runner):
    """`iron-run gemma3`."""

    name = "gemma3"
    summary = "Gemma 3's text models."
    architectures = ("gemma3", "gemma3_text")
    model = Gemma3
    absent = {
        "max_position_embeddings": 131072, "num_key_value_heads": 4, "head_dim": 256, "rope_theta": 1e6,
        "rope_local_base_freq": LOCAL_BASE, "query_pre_attn_scalar": 256, "sliding_window": 4096,
    }  # fmt: skip

    @classmethod
    def layout(cls, kind: str, tied: bool) -> Layout:
        """In a Hugging Face checkpoint norm weights are stored less 1; in a GGUF they are whole."""
        names = {k: QK_NORMS[k] | _NORMS[k] for k in _NORMS}
        return layout(kind, tied, names, less_one=kind == "safetensors")

    @classmethod
    def details(cls, kind: str, entries: Entries, found: dict[str, Any]) -> dict[str, Any]:
        layers, width = found["num_layers"], found["hidden_size"]
        always = dict(embedding_scale=math.sqrt(width), activation="gelu_tanh")
        if kind == "gguf":
            queries = width / found["num_heads"] if layers == LAYERS_OF_27B else found["head_dim"]
            return always | dict(
                score_scale=found["score_scale"] or queries**-0.5,
                sliding=every_nth_is_full(layers, entries.whole("attention.sliding_window_pattern", PERIOD)),
                window=entries.whole("attention.sliding_window"),
                local_rope_base=entries.number("rope.freq_base_swa", LOCAL_BASE),
            )
        for key in ("hidden_act", "hidden_activation"):
            entries.refuse_unless(key, "gelu_pytorch_tanh")
        said = found["sliding"] or entries.has("layer_types")
        sliding = found["sliding"] if said else every_nth_is_full(layers, PERIOD)
        return always | dict(
            score_scale=entries.number("query_pre_attn_scalar") ** -0.5,
            sliding=sliding,
            window=entries.whole("sliding_window") if sliding else None,
            local_rope_base=found["local_rope_base"] or entries.number("rope_local_base_freq"),
            tied=entries.entries.get("tie_word_embeddings") is not False,
        )

    @classmethod
    def full_size(cls) -> Config:
        """Gemma 3 270M: 18 layers of 640, 4 query heads and one KV head of 256, vocabulary 262144."""
        return Config(
            name="Gemma 3 270M shape",
            vocab_size=262144,
            hidden_size=640,
            num_layers=18,
            num_heads=4,
            num_kv_heads=1,
            head_dim=256,
            intermediate_size=2048,
            max_seq_len=32768,
            rope_base=1000000.0,
            norm_epsilon=1e-6,
            activation="gelu_tanh",
            embedding_scale=math.sqrt(640),
            window=512,
            sliding=every_nth_is_full(18, PERIOD),
            local_rope_base=LOCAL_BASE,
            tied=True,
        )
