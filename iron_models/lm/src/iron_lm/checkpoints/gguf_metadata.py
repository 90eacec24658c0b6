"""A decoder's GGUF metadata: keywords of `DecoderConfig`, for a family to add to."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_lm.checkpoints.entries import MOST_LAYERS, Entries
from iron_lm.parts.part import widen
from iron_lm.parts.rotary import RotaryConfig, longrope_of

#: What a GGUF calls the epsilon of its norms: of those that do not centre, and of those that do.
EPSILONS = ("attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon")
#: What fields of configs are called.
_KEYS = {
    "hidden_size": "embedding_length", "num_layers": "block_count", "num_heads": "attention.head_count",
    "num_kv_heads": "attention.head_count_kv", "head_dim": "attention.key_length", "dims": "rope.dimension_count",
    "intermediate_size": "feed_forward_length", "max_positions": "context_length", "window": "attention.sliding_window",
}  # fmt: skip
#: What llama.cpp takes for an entry that is absent.
_DEFAULTS = {"rope.freq_base": 10000.0}


def entries_of(metadata: dict[str, Any]) -> Entries:
    """What a GGUF says of its own architecture."""
    return Entries(metadata, "GGUF metadata", f"{metadata.get('general.architecture')}.", _DEFAULTS)


def decoder(entries: Entries, tensors: Any, *, neighbours: bool = False) -> dict[str, Any]:
    """`DecoderConfig`'s keywords; CheckpointError names what is missing or cannot be. tensors: the file's, by name.

    neighbours: does llama.cpp's converter reorder this architecture's query and key rows, so that the pairs that turn are
    neighbours?
    """
    found = sizes(entries, tensors)
    head_dim = found["head_dim"]
    turning = entries.whole("rope.dimension_count", head_dim)
    return found | dict(
        rotary=RotaryConfig(
            head_dim,
            entries.number("rope.freq_base"),
            scaling(entries, tensors),
            _numbers(tensors, "rope_freqs.weight") or None,
            neighbours,
            dims=None if turning == head_dim else turning,
        ),
        norm_epsilon=entries.number(entries.first(*EPSILONS)),
        score_scale=entries.optional("attention.scale"),
        score_cap=entries.optional("attn_logit_softcapping"),
        logit_cap=entries.optional("final_logit_softcapping"),
    )


def sizes(entries: Entries, tensors: Any) -> dict[str, Any]:
    """Those of `DecoderConfig`'s keywords that any decoder has; CheckpointError names what is missing or cannot be."""
    metadata = entries.entries
    entries.keys |= _KEYS
    heads, width = entries.whole("attention.head_count"), entries.whole("embedding_length")
    tokens = metadata.get("tokenizer.ggml.tokens", ())
    rows = tensors["token_embd.weight"][0][0] if "token_embd.weight" in tensors else None
    return dict(
        vocab_size=entries.whole("vocab_size", (len(tokens) if hasattr(tokens, "__len__") else 0) or rows),
        hidden_size=width,
        num_layers=entries.whole("block_count", most=MOST_LAYERS),
        num_heads=heads,
        num_kv_heads=entries.whole("attention.head_count_kv", heads),
        head_dim=entries.whole("attention.key_length", width // heads or 1),
        intermediate_size=entries.whole("feed_forward_length"),
        max_positions=entries.whole("context_length"),
        tied="output.weight" not in _listed(tensors),
        name=str(metadata.get("general.name", "")),
    )


def refuse_windows(entries: Entries) -> None:
    """CheckpointError for a window that no reader of this metadata asked for."""
    entries.refuse_unasked("attention.sliding_window")


def _listed(tensors: Any) -> set[str]:
    """Names of tensors; one of a type Iron does not take is still there."""
    return {*tensors, *getattr(tensors, "refused", ())}


def _numbers(tensors: Any, name: str) -> tuple[float, ...]:
    """Of a vector, which is no weight then; () where there is none."""
    if name not in _listed(tensors):
        return ()
    spare: set[str] = getattr(tensors, "spare", set())
    spare.add(name)
    return tuple(float(number) for number in np.ravel(widen(tensors[name][2])))


def scaling(entries: Entries, tensors: Any) -> tuple[str, tuple[float, ...]] | None:
    """How a GGUF scales positions, as llama.cpp reads it: factors in two tensors, `rope.scaling.type`, or the older key
    `rope.scale_linear`."""
    short, long = (_numbers(tensors, f"rope_factors_{context}.weight") for context in ("short", "long"))
    if short or long:
        entries.refuse_unless("rope.scaling.type", "longrope")
        original = entries.number("rope.scaling.original_context_length")
        return longrope_of(original, entries.number("rope.scaling.attn_factor", 1.0), short, long)
    entries.refuse_unless("rope.scaling.type", "none", "linear")
    entries.refuse_unless("rope.scaling.attn_factor", 1.0)
    said = entries.entries.get(f"{entries.prefix}rope.scaling.type")
    if said == "none":
        return None
    for key in ("rope.scaling.factor", "rope.scale_linear"):
        if entries.has(key):
            return None if entries.entries[entries.prefix + key] == 0 else ("linear", (entries.number(key),))
    return None if said is None else ("linear", (entries.number("rope.scaling.factor"),))  # which says that it is not there
