"""A config as the entries of a config.json, from which `huggingface.decoder` makes the same config."""

from __future__ import annotations

import math
from typing import Any

import attrs
import numpy as np

from iron_core.errors import CheckpointError
from iron_lm.checkpoints import huggingface
from iron_lm.checkpoints.huggingface import ACTIVATIONS
from iron_lm.parts.rotary import RotaryConfig, inverse_frequencies

_ACTIVATIONS = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
#: What Llama 3's scaling has in every model but its factor and the original context.
_LOW, _HIGH = 1.0, 4.0
#: The original context of every Llama 3 that is scaled.
_ORIGINAL = 8192.0
#: By how much frequencies may differ that were divided in one order or another.
_CLOSE = 1e-6


def config_json(family: Any, config: Any) -> dict[str, Any]:
    """The config.json of a family's config. CheckpointError where `from_huggingface` makes another of it, but for the order of rows
    that `neighbours` stands for, and factors in the place of a scaling."""
    entries = family.to_huggingface(config)
    try:
        found = family.from_huggingface(huggingface.entries_of(entries, family.absent))
    except CheckpointError as error:
        raise CheckpointError(f"{family.name}: no config.json says what this model is like: {error}") from None
    wanted = attrs.evolve(config, rotary=config.rotary and as_described(config.rotary), usual_context=None, name=found.name)
    differs = [field.name for field in attrs.fields(type(config)) if getattr(found, field.name) != getattr(wanted, field.name)]
    if differs:
        name, (says, is_) = differs[0], (getattr(one, differs[0]) for one in (found, wanted))
        raise CheckpointError(f"{family.name}: no config.json says what this model is like: {name} would be {says!r}, not {is_!r}.")
    return entries


def entries_of(config: Any) -> dict[str, Any]:
    """The entries of a decoder's config. CheckpointError for a rotary embedding that a config.json cannot describe."""
    entries: dict[str, Any] = {
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
        "hidden_act": _ACTIVATIONS.get(config.activation, config.activation),
        "tie_word_embeddings": config.tied,
    }
    if config.rotary is not None:
        entries |= rotary_entries(config.rotary)
    if config.score_scale is not None:
        entries["query_pre_attn_scalar"] = _inverse_square(config.score_scale)
    for key, value in (("attn_logit_softcapping", config.score_cap), ("final_logit_softcapping", config.logit_cap)):
        entries |= {} if value is None else {key: value}
    if any(config.sliding):
        entries["layer_types"] = [("full", "sliding")[slides] + "_attention" for slides in config.sliding]
        entries["sliding_window"] = config.window
    return entries


def rotary_entries(config: RotaryConfig) -> dict[str, Any]:
    """Base, share of a head that turns, and scaling."""
    entries: dict[str, Any] = {"rope_theta": config.base}
    if config.turning != config.head_dim:
        entries["partial_rotary_factor"] = config.turning / config.head_dim
    scaling = as_described(config).scaling
    match scaling:
        case ("linear", (factor,)):
            entries["rope_scaling"] = {"rope_type": "linear", "factor": factor}
        case ("llama3", (factor, low, high, original)):
            entries["rope_scaling"] = {
                "rope_type": "llama3", "factor": factor, "low_freq_factor": low, "high_freq_factor": high,
                "original_max_position_embeddings": int(original) if original.is_integer() else original,
            }  # fmt: skip
        case (name, _):
            raise CheckpointError(f"rotary embedding scaled by {name}, which is not written to a config.json. Legal: linear, llama3.")
    return entries


def as_described(config: RotaryConfig) -> RotaryConfig:
    """The rotary embedding as a config.json has it: halves that turn, and the scaling that factors come from."""
    scaling = config.scaling if config.factors is None else ("llama3", _llama3(config))
    return RotaryConfig(config.head_dim, config.base, scaling, dims=config.dims)


def _llama3(config: RotaryConfig) -> tuple[float, float, float, float]:
    """The numbers of Llama 3's scaling that give these factors; CheckpointError where none do."""
    assert config.factors is not None
    factors = np.array(config.factors, np.float64)
    plain, factor = RotaryConfig(config.head_dim, config.base, dims=config.dims), round(float(factors.max()), 3)
    frequencies, _ = inverse_frequencies(plain)
    originals = [_ORIGINAL]
    for frequency, own in zip(frequencies.tolist(), factors.tolist(), strict=True):
        if 1 < own < factor:  # of a pair between those left and those divided, which tells the original context
            share = (1 / own - 1 / factor) / (1 - 1 / factor)
            originals.append(float(round(2 * math.pi / frequency * (_LOW + share * (_HIGH - _LOW)))))
    for original in originals:
        numbers = (factor, _LOW, _HIGH, original)
        scaled, _ = inverse_frequencies(RotaryConfig(config.head_dim, config.base, ("llama3", numbers), dims=config.dims))
        if np.allclose(scaled * factors, frequencies, rtol=_CLOSE, atol=0):
            return numbers
    raise CheckpointError("the factors of its rotary embedding are no scaling of Llama 3's, and a config.json has no others.")


def _inverse_square(scale: float) -> float:
    """The number whose inverse root this is, whole where a whole one is it."""
    exact = scale**-2
    near = [float(round(exact)) or exact, exact, math.nextafter(exact, math.inf), math.nextafter(exact, 0)]
    return next((number for number in near if number**-0.5 == scale), exact)
