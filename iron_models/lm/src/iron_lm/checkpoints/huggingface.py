"""A decoder's config.json: keywords of `DecoderConfig`, for a family to add to."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from iron_core.errors import CheckpointError
from iron_lm.checkpoints.entries import MOST_LAYERS, Entries, shown
from iron_lm.decoder_config import every_nth_is_full
from iron_lm.parts.rotary import RotaryConfig, longrope_of

#: What transformers takes for entries that any decoder's config.json may leave out.
_DEFAULTS = {"rms_norm_eps": 1e-6, "rope_theta": 10000.0}
#: What configuration classes call the epsilon of their norms.
EPSILONS = ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps")
#: What fields of configs are called.
_KEYS = {
    "num_layers": "num_hidden_layers", "num_heads": "num_attention_heads", "num_kv_heads": "num_key_value_heads",
    "max_positions": "max_position_embeddings", "window": "sliding_window", "tied": "tie_word_embeddings",
}  # fmt: skip
#: Entries of which each says which layers slide, or that none does.
_SLIDING = ("layer_types", "sliding_window_pattern", "use_sliding_window")
#: What an activation is called in `parts.mlp`, by hidden_act.
ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh"}


def entries_of(raw: dict[str, Any], absent: Mapping[str, Any] | None = None) -> Entries:
    """What config.json says. absent: what the family's own configuration class takes for entries that are not there."""
    return Entries(raw, "config.json", defaults=_DEFAULTS | dict(absent or {}))


def decoder(entries: Entries, *, encodes: bool = False) -> dict[str, Any]:
    """`DecoderConfig`'s keywords; CheckpointError names what is missing or cannot be. encodes: may attention be in both directions?"""
    raw = entries.entries
    entries.keys |= _KEYS
    if "text_config" in raw:
        raise CheckpointError("config.json describes a decoder among other parts (text_config); a GGUF of it holds the decoder alone.")
    for key in ("hidden_act", "hidden_activation"):
        entries.refuse_unless(key, *ACTIVATIONS)
    if not encodes:
        entries.refuse_unless("use_bidirectional_attention", False)
    heads, width = entries.whole("num_attention_heads"), entries.whole("hidden_size")
    layers = entries.whole("num_hidden_layers", most=MOST_LAYERS)
    head_dim = entries.whole("head_dim", width // heads or 1)
    found = sliding(entries, layers)
    queries = entries.optional("query_pre_attn_scalar")
    return dict(
        vocab_size=entries.whole("vocab_size"),
        hidden_size=width,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=entries.whole("num_key_value_heads", heads),
        head_dim=head_dim,
        intermediate_size=entries.whole("intermediate_size"),
        max_positions=entries.whole("max_position_embeddings"),
        rotary=rotary(entries, head_dim),
        norm_epsilon=entries.number(entries.first(*EPSILONS)),
        activation=ACTIVATIONS[raw.get("hidden_act") or raw.get("hidden_activation") or "silu"],
        score_scale=None if queries is None else queries**-0.5,
        score_cap=entries.optional("attn_logit_softcapping"),
        logit_cap=entries.optional("final_logit_softcapping"),
        sliding=found,
        window=entries.whole("sliding_window") if found else None,
        tied=entries.flag("tie_word_embeddings"),
        name=str(raw.get("_name_or_path") or raw.get("model_type", "")),
    )


def refuse_windows(entries: Entries) -> None:
    """CheckpointError for a window that no reader of this config asked for, unless an entry says which layers have one."""
    if not any(entries.has(key) or key in entries.defaults for key in _SLIDING):
        entries.refuse_unasked("sliding_window")


def rotary(entries: Entries, head_dim: int, kind: str | None = None) -> RotaryConfig:
    """The rotary embedding that config.json describes. kind: of the layers of one kind ("full_attention", ...), where it has
    an object for each."""
    rope = entries.entries.get("rope_parameters") or entries.entries.get("rope_scaling") or {}
    if isinstance(rope, dict) and (nested := rope.get(kind or "full_attention")) is not None:
        rope = nested
    if not isinstance(rope, dict):
        raise CheckpointError(f"config.json: rope_parameters is {shown(rope)}; legal: an object.")
    base = (Entries(rope, "config.json") if "rope_theta" in rope else entries).number("rope_theta")
    share = (Entries(rope, "config.json") if "partial_rotary_factor" in rope else entries).number("partial_rotary_factor", 1.0)
    scaled = scaling(rope, entries)
    if share == 1 or (scaled is not None and scaled[0] == "proportional"):
        return RotaryConfig(head_dim, base, scaled)
    turning = int(head_dim * share)
    if not 2 <= turning <= head_dim or turning % 2:
        says = f"partial_rotary_factor is {share:g}, of which {turning} of head_dim {head_dim} turn; legal: an even number up to {head_dim}"
        raise CheckpointError(f"config.json: {says}, for pairs turn.")
    return RotaryConfig(head_dim, base, scaled, dims=turning)


def scaling(raw: dict[str, Any], entries: Entries) -> tuple[str, tuple[float, ...]] | None:
    """How a `rope_parameters` object scales, as `RotaryConfig` has it; None where it does not. `entries` are those around it."""
    kind = raw.get("rope_type", raw.get("type", "default"))
    own = Entries(raw, "rope scaling")
    if kind == "default":
        return None
    if kind == "linear":
        return "linear", (own.number("factor"),)
    if kind == "llama3":
        original = own.number("original_max_position_embeddings")
        low, high = own.number("low_freq_factor"), own.number("high_freq_factor")
        if not low < high:
            raise CheckpointError(f"rope scaling: low_freq_factor {low} is not below high_freq_factor {high}.")
        return "llama3", (own.number("factor"), low, high, original)
    if kind == "yarn":
        factor = own.number("factor")
        original = own.number("original_max_position_embeddings", _original(entries))
        attention = own.number("attention_factor", _mscale(own, factor))
        cut = float(raw.get("truncate", True) is not False)
        return "yarn", (factor, original, own.number("beta_fast", 32.0), own.number("beta_slow", 1.0), attention, cut)
    if kind in ("longrope", "su"):
        original = own.number("original_max_position_embeddings", _original(entries))
        factor = own.number("factor", entries.number("max_position_embeddings") / original)
        usual = math.sqrt(1 + math.log(max(factor, 1)) / math.log(max(original, 2)))
        short, long = own.numbers("short_factor"), own.numbers("long_factor")
        return longrope_of(original, own.number("attention_factor", usual), short, long)
    if kind == "proportional":
        return "proportional", (own.number("partial_rotary_factor", 1.0), own.number("factor", 1.0))
    legal = "default, linear, llama3, yarn, longrope, proportional"
    raise CheckpointError(f"rope scaling {str(kind)[:40]!r} is not one Iron has. Legal: {legal}.")


def _original(entries: Entries) -> float:
    """Tokens of the context a model was trained in before its positions were scaled, where the scaling does not say it."""
    return entries.number("original_max_position_embeddings", entries.number("max_position_embeddings"))


def _mscale(own: Entries, factor: float) -> float:
    """What yarn multiplies cosine and sine by, where the file does not say it whole."""

    def of(scale: float) -> float:
        return 0.1 * scale * math.log(factor) + 1.0 if factor > 1 else 1.0

    if own.has("mscale") and own.has("mscale_all_dim"):
        return of(own.number("mscale")) / of(own.number("mscale_all_dim"))
    return of(1.0)


def sliding(entries: Entries, layers: int) -> tuple[bool, ...]:
    """Which layers slide; () where none does."""
    kinds = entries.entries.get("layer_types")
    if kinds is not None:
        known = ("full_attention", "sliding_attention")
        if not isinstance(kinds, list) or len(kinds) != layers or not all(kind in known for kind in kinds):
            raise CheckpointError(
                f"config.json: layer_types is {str(kinds)[:60]}; legal: {' or '.join(known)} for each of {layers} layers."
            )
        found = tuple(kind == "sliding_attention" for kind in kinds)
    elif entries.has("sliding_window_pattern"):
        found = every_nth_is_full(layers, entries.whole("sliding_window_pattern"))
    elif entries.entries.get("use_sliding_window") is True:
        first = 0 if entries.entries.get("max_window_layers") == 0 else entries.whole("max_window_layers")
        found = tuple(i >= first for i in range(layers))
    else:
        found = ()
    return found if any(found) else ()
