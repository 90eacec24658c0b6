"""What a config.json says of EmbeddingGemma 2, and what it says of a config."""

from __future__ import annotations

from typing import Any

from iron_core.errors import CheckpointError
from iron_embedding_gemma2.config import AudioConfig, Marks, TextConfig, VisionConfig
from iron_lm.checkpoints import huggingface
from iron_lm.checkpoints.entries import MOST_LAYERS, Entries, shown

_LEGAL = "gelu_pytorch_tanh"
#: Tokens of a text, where nobody asks for a number.
USUAL = 2048


def config_of(entries: Entries) -> TextConfig:
    """Of a config.json of the encoder alone, or of all towers. CheckpointError names what is missing or cannot be."""
    raw = entries.entries
    if "text_config" not in raw:
        return _text(entries)
    audio, vision = (_within(entries, f"{kind}_config") for kind in ("audio", "vision"))
    text = _within(entries, "text_config")
    if text is None:
        raise CheckpointError("config.json: text_config is null; legal: an object.")
    return _text(
        text,
        audio=None if audio is None else _audio(audio),
        vision=None if vision is None else _vision(vision),
        marks=Marks(**{field: entries.whole(key, getattr(Marks(), field)) for field, key in _MARKS.items()}),
    )


_MARKS = {
    "image": "image_token_id", "video": "video_token_id", "audio": "audio_token_id", "image_begins": "boi_token_id",
    "image_ends": "eoi_token_id", "audio_begins": "boa_token_id", "audio_ends": "eoa_token_index",
}  # fmt: skip


def _within(entries: Entries, key: str) -> Entries | None:
    """The object of a tower; None where there is none."""
    found = entries.entries.get(key)
    if found is None:
        return None
    if not isinstance(found, dict):
        raise CheckpointError(f"config.json: {key} is {shown(found)}; legal: an object.")
    return Entries(found, f"config.json, {key}")


def _text(entries: Entries, **towers: Any) -> TextConfig:
    entries.refuse_unless("hidden_activation", _LEGAL)
    entries.refuse_unless("attention_bias", False)
    layers = entries.whole("num_hidden_layers", most=MOST_LAYERS)
    sliding = huggingface.sliding(entries, layers)
    if not entries.has("layer_types"):
        raise CheckpointError(f"{entries.where} lacks layer_types, which says which layers slide.")
    kinds = sorted(set(entries.entries["layer_types"]), reverse=True)
    rope = entries.entries.get("rope_parameters")
    if not isinstance(rope, dict) or not all(isinstance(rope.get(kind), dict) for kind in kinds):
        raise CheckpointError(f"{entries.where}: rope_parameters is {shown(rope)}; legal: an object with one for {' and '.join(kinds)}.")
    head_dim, kv_heads = entries.whole("head_dim"), entries.whole("num_key_value_heads")
    wide, wide_kv = _global(entries, sliding or (False,) * layers, head_dim, kv_heads)
    return TextConfig(
        vocab_size=entries.whole("vocab_size"),
        hidden_size=entries.whole("hidden_size"),
        num_layers=layers,
        num_heads=entries.whole("num_attention_heads"),
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate_size=entries.whole("intermediate_size"),
        max_positions=entries.whole("max_position_embeddings", 262144),
        rotary=huggingface.rotary(entries, wide, kinds[-1]),
        local_rotary=huggingface.rotary(entries, head_dim, kinds[0]),
        norm_epsilon=entries.number("rms_norm_eps"),
        activation="gelu_tanh",
        sliding=sliding,
        window=entries.whole("sliding_window") + 1 if sliding else None,
        pooling="mean",
        global_head_dim=wide,
        global_kv_heads=wide_kv,
        signal_size=entries.whole("hidden_size_per_layer_input"),
        output_size=entries.whole("embedding_dim"),
        name=str(entries.entries.get("_name_or_path") or entries.entries.get("model_type", "")),
        **towers,
    )


def _global(entries: Entries, sliding: tuple[bool, ...], head_dim: int, kv_heads: int) -> tuple[int, int]:
    """Size of a head, and heads with keys, of the layers that see everything: `per_layer_config`, by layer."""
    given = entries.entries.get("per_layer_config") or {}
    if not isinstance(given, dict) or not all(str(layer).isdigit() and isinstance(own, dict) for layer, own in given.items()):
        raise CheckpointError(f"{entries.where}: per_layer_config is {shown(given)}; legal: an object for each layer that has its own.")
    own = {int(layer): Entries(found, f"{entries.where}, per_layer_config.{layer}") for layer, found in given.items()}
    sizes = {
        i: (own[i].whole("head_dim", head_dim), own[i].whole("num_key_value_heads", kv_heads)) if i in own else (head_dim, kv_heads)
        for i in range(len(sliding))
    }
    full = {sizes[i] for i, slides in enumerate(sliding) if not slides} or {(head_dim, kv_heads)}
    if len(full) > 1 or any(sizes[i] != (head_dim, kv_heads) for i, slides in enumerate(sliding) if slides):
        raise CheckpointError(f"{entries.where}: per_layer_config differs among layers of one kind; this model runs one size for each.")
    return full.pop()


def _audio(entries: Entries) -> AudioConfig:
    entries.refuse_unless("hidden_act", "silu")
    entries.refuse_unless("attention_context_right", 0)
    left = entries.whole("attention_context_left")
    entries.refuse_unless("attention_chunk_size", left - 1)  # distances are counted by one, and seen by the other
    channels = entries.entries.get("subsampling_conv_channels")
    if not isinstance(channels, list) or len(channels) != 2:
        raise CheckpointError(f"{entries.where}: subsampling_conv_channels is {shown(channels)}; legal: two whole numbers.")
    return AudioConfig(
        hidden_size=entries.whole("hidden_size"),
        num_layers=entries.whole("num_hidden_layers", most=MOST_LAYERS),
        num_heads=entries.whole("num_attention_heads"),
        channels=tuple(channels),
        taps=entries.whole("conv_kernel_size"),
        reach=left - 2,
        residual=entries.number("residual_weight"),
        cap=entries.number("attention_logit_cap"),
        output_size=entries.whole("output_proj_dims"),
        norm_epsilon=entries.number("rms_norm_eps"),
        clipped=entries.flag("use_clipped_linears", True),
    )


def _vision(entries: Entries) -> VisionConfig:
    entries.refuse_unless("hidden_activation", _LEGAL)
    entries.refuse_unless("attention_bias", False)
    heads = entries.whole("num_attention_heads")
    entries.refuse_unless("num_key_value_heads", heads)
    rope = entries.entries.get("rope_parameters")
    if not isinstance(rope, dict):
        raise CheckpointError(f"{entries.where}: rope_parameters is {shown(rope)}; legal: an object.")
    turns = Entries(rope, f"{entries.where}, rope_parameters")
    turns.refuse_unless("rope_type", "default", "axial")
    return VisionConfig(
        hidden_size=entries.whole("hidden_size"),
        num_layers=entries.whole("num_hidden_layers", most=MOST_LAYERS),
        num_heads=heads,
        head_dim=entries.whole("head_dim"),
        intermediate_size=entries.whole("intermediate_size"),
        patch=entries.whole("patch_size"),
        pool=entries.whole("pooling_kernel_size"),
        positions=entries.whole("position_embedding_size"),
        rotary_base=turns.number("rope_theta"),
        norm_epsilon=entries.number("rms_norm_eps"),
        clipped=entries.flag("use_clipped_linears"),
        standardize=entries.flag("standardize"),
    )


def entries_of(config: TextConfig) -> dict[str, Any]:
    """The entries of the encoder alone: a config.json of which `config_of` makes the same, but for the towers beside it."""
    kinds = ["sliding_attention" if config.slides(i) else "full_attention" for i in range(config.num_layers)]
    own = {"head_dim": config.global_head_dim, "num_key_value_heads": config.global_kv_heads}
    assert config.rotary is not None
    turns = {"sliding_attention": config.local_rotary, "full_attention": config.rotary}
    entries: dict[str, Any] = {
        "model_type": "embedding_gemma2_text",
        "_name_or_path": config.name,
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "intermediate_size": config.intermediate_size,
        "max_position_embeddings": config.max_positions,
        "rms_norm_eps": config.norm_epsilon,
        "hidden_activation": _LEGAL,
        "layer_types": kinds,
        "per_layer_config": {str(i): own for i, kind in enumerate(kinds) if kind == "full_attention"},
        "rope_parameters": {kind: {"rope_type": "default", "rope_theta": turns[kind].base} for kind in set(kinds)},
        "hidden_size_per_layer_input": config.signal_size,
        "embedding_dim": config.output_size,
    }
    return entries | ({} if config.window is None else {"sliding_window": config.window - 1})
