"""What the weights of EmbeddingGemma 2 are called in its checkpoints."""

from __future__ import annotations

from iron_embedding_gemma2.config import TextConfig
from iron_lm.checkpoints.names import BUFFERS
from iron_lm.checkpoints.sources import Either, Names, Source, Split

_LAYER = {
    "mixer_norm.weight": "input_layernorm.weight",
    "mixer_norm_after.weight": "post_attention_layernorm.weight",
    "ffn_norm.weight": "pre_feedforward_layernorm.weight",
    "ffn_norm_after.weight": "post_feedforward_layernorm.weight",
    **{f"mixer.{x}": f"self_attn.{x}_proj.weight" for x in "qkvo"},
    **{f"mixer.{x}_norm.weight": f"self_attn.{x}_norm.weight" for x in "qk"},
    **{f"ffn.{x}": f"mlp.{x}_proj.weight" for x in ("gate", "up", "down")},
    "block.gate": "ple_block.per_layer_input_gate.weight",
    "block.out": "ple_block.per_layer_projection.weight",
    "block.norm.weight": "ple_block.post_per_layer_input_norm.weight",
    "scalar": "layer_scalar",
}
#: What a checkpoint of all towers has beside the encoder of texts, and what older versions of transformers saved.
BESIDE = (*BUFFERS, "vision_tower.", "audio_tower.", "embed_vision.", "embed_audio.")


def text(config: TextConfig) -> Names:
    """Of the encoder of texts, in a checkpoint of it alone or of all towers. What its embeddings say to the layers is one matrix."""
    parts = (config.signal_size,) * config.num_layers
    said = _of_text("ple.per_layer_model_projection.weight")
    return {
        "embedding.table": _of_text("embed_tokens.weight"),
        "norm.weight": _of_text("norm.weight"),
        "matrix": _of_text("embedding_projection.weight"),
        **{f"layers.{{i}}.{path}": _of_text(f"layers.{{i}}.{name}") for path, name in _LAYER.items()},
        **{f"layers.{i}.signal.matrix": Split(said, parts, i) for i in range(config.num_layers)},
        # The layers share it, so it is the first one's.
        "layers.0.signal.norm.weight": _of_text("ple.per_layer_projection_norm.weight"),
    }


def _of_text(name: str) -> Source:
    return Either(f"language_model.{name}", name)
