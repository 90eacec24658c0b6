"""A decoder's GGUF metadata: keywords of `DecoderConfig`, for a family to add to."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_lm.checkpoints.entries import MOST_LAYERS, Entries
from iron_lm.parts.rotary import RotaryConfig

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
    metadata = entries.entries
    scaled = scaling(entries)
    entries.refuse_unless("attn_logit_softcapping")
    heads, width = entries.whole("attention.head_count"), entries.whole("embedding_length")
    head_dim = entries.whole("attention.key_length", width // heads or 1)
    turning = entries.whole("rope.dimension_count", head_dim)
    listed = {*tensors, *getattr(tensors, "refused", ())}  # one of a type Iron does not take is still there
    factors = tensors["rope_freqs.weight"][2] if "rope_freqs.weight" in listed else None
    tokens = metadata.get("tokenizer.ggml.tokens", ())
    rows = tensors["token_embd.weight"][0][0] if "token_embd.weight" in tensors else None
    return dict(
        vocab_size=entries.whole("vocab_size", (len(tokens) if hasattr(tokens, "__len__") else 0) or rows),
        hidden_size=width,
        num_layers=entries.whole("block_count", most=MOST_LAYERS),
        num_heads=heads,
        num_kv_heads=entries.whole("attention.head_count_kv", heads),
        head_dim=head_dim,
        intermediate_size=entries.whole("feed_forward_length"),
        max_positions=entries.whole("context_length"),
        rotary=RotaryConfig(
            head_dim,
            entries.number("rope.freq_base"),
            scaled,
            None if factors is None else tuple(float(f) for f in np.ravel(factors)),
            neighbours,
            dims=None if turning == head_dim else turning,
        ),
        norm_epsilon=entries.number("attention.layer_norm_rms_epsilon"),
        score_scale=entries.optional("attention.scale"),
        logit_cap=entries.optional("final_logit_softcapping"),
        tied="output.weight" not in listed,
        name=str(metadata.get("general.name", "")),
    )


def scaling(entries: Entries) -> tuple[str, tuple[float, ...]] | None:
    """How a GGUF scales positions, as llama.cpp reads it: `rope.scaling.type`, or the older key `rope.scale_linear`."""
    entries.refuse_unless("rope.scaling.type", "none", "linear")
    entries.refuse_unless("rope.scaling.attn_factor", 1.0)
    said = entries.entries.get(f"{entries.prefix}rope.scaling.type")
    if said == "none":
        return None
    for key in ("rope.scaling.factor", "rope.scale_linear"):
        if entries.has(key):
            return None if entries.entries[entries.prefix + key] == 0 else ("linear", (entries.number(key),))
    return None if said is None else ("linear", (entries.number("rope.scaling.factor"),))  # which says that it is not there
