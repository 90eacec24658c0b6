"""What the weights of EmbeddingGemma 2 are called in its checkpoints."""

from __future__ import annotations

from iron_embedding_gemma2.bounds import BOUNDS
from iron_embedding_gemma2.config import AudioConfig, TextConfig
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
_TEXT, _AUDIO, _VISION = ("language_model.",), ("audio_tower.", "embed_audio."), ("vision_tower.", "embed_vision.")
#: What a checkpoint of all towers has beside one of them, and what older versions of transformers saved.
BESIDE = {
    "text": (*BUFFERS, *_AUDIO, *_VISION),
    "hearing": (*BUFFERS, *_TEXT, *_VISION),
    "seeing": (*BUFFERS, *_TEXT, *_AUDIO),
}


def text(config: TextConfig) -> Names:
    """Of the encoder of texts, in a checkpoint of it alone or of all towers. What its embeddings say to the layers is one matrix."""
    parts = (config.signal_size,) * config.num_layers
    said = _of_text("ple.per_layer_model_projection.weight")
    return {
        "embedding.table": _of_text("embed_tokens.weight"),
        "norm.weight": _of_text("norm.weight"),
        "head.matrix": _of_text("embedding_projection.weight"),
        **{f"layers.{{i}}.{path}": _of_text(f"layers.{{i}}.{name}") for path, name in _LAYER.items()},
        **{f"layers.{i}.signal.matrix": Split(said, parts, i) for i in range(config.num_layers)},
        # The layers share it, so it is the first one's.
        "layers.0.signal.norm.weight": _of_text("ple.per_layer_projection_norm.weight"),
    }


_AUDIO_TOWER = {
    **{
        f"subsampling.{part}.convolution.kernel": f"subsample_conv_projection.layer{i}.conv.weight"
        for i, part in enumerate(("first", "second"))
    },
    **{f"subsampling.{part}.norm.weight": f"subsample_conv_projection.layer{i}.norm.weight" for i, part in enumerate(("first", "second"))},
    "subsampling.matrix": "subsample_conv_projection.input_proj_linear.weight",
    "output": "output_proj.weight",
    "output_bias": "output_proj.bias",
}
_AUDIO_LAYER = {
    **{f"{half}.norm_{side}.weight": f"feed_forward{i}.{theirs}_layer_norm.weight"
       for i, half in ((1, "first"), (2, "second")) for side, theirs in (("before", "pre"), ("after", "post"))},
    "mixer_norm.weight": "norm_pre_attn.weight",
    "mixer_norm_after.weight": "norm_post_attn.weight",
    "norm.weight": "norm_out.weight",
    "mixer.factors": "self_attn.per_dim_scale",
    "mixer.relative": "self_attn.relative_k_proj.weight",
    "convolution.norm_before.weight": "lconv1d.pre_layer_norm.weight",
    "convolution.norm_after.weight": "lconv1d.conv_norm.weight",
    "convolution.kernel": "lconv1d.depthwise_conv1d.weight",
}  # fmt: skip
_AUDIO_PRODUCTS = {
    **{f"{half}.{ours}": f"feed_forward{i}.ffw_layer_{j}"
       for i, half in ((1, "first"), (2, "second")) for j, ours in ((1, "widens"), (2, "narrows"))},
    **{f"mixer.{x}": f"self_attn.{x}_proj" for x in "qkv"},
    "mixer.post": "self_attn.post",
    "convolution.starts": "lconv1d.linear_start",
    "convolution.ends": "lconv1d.linear_end",
}  # fmt: skip


def audio(config: AudioConfig) -> Names:
    """Of the audio tower."""
    layer: dict[str, Source | str] = {path: f"audio_tower.layers.{{i}}.{name}" for path, name in _AUDIO_LAYER.items()}
    for path, name in _AUDIO_PRODUCTS.items():
        product = f"audio_tower.layers.{{i}}.{name}"
        layer |= {f"{path}.matrix": f"{product}.linear.weight"} | {f"{path}.bounds.{bound}": f"{product}.{bound}" for bound in BOUNDS}
    start = layer.pop("convolution.starts.matrix")
    halves = (config.hidden_size, config.hidden_size)
    layer |= {f"convolution.starts.matrix{i}": Split(start, halves, i) for i in range(2)}
    return {
        **{path: f"audio_tower.{name}" for path, name in _AUDIO_TOWER.items()},
        **{f"layers.{{i}}.{path}": source for path, source in layer.items()},
        "embedded": "embed_audio.embedding_projection.weight",
    }


def _of_text(name: str) -> Source:
    return Either(f"language_model.{name}", name)
