"""The shapes of a decoder's matrices by their names: a Q4NX file does not say them, config.json does."""

from __future__ import annotations

import re
from typing import Any

from iron_lm.checkpoints.entries import Entries

_LAYER = re.compile(r"model\.layers\.\d+\.")
#: Rows and columns, by what `_sizes` calls them; those of a layer without its number.
_SHAPES = {
    "model.embed_tokens.weight": ("vocab_size", "hidden_size"),
    "lm_head.weight": ("vocab_size", "hidden_size"),
    "{layer}self_attn.q_proj.weight": ("queries", "hidden_size"),
    "{layer}self_attn.k_proj.weight": ("keys", "hidden_size"),
    "{layer}self_attn.v_proj.weight": ("keys", "hidden_size"),
    "{layer}self_attn.o_proj.weight": ("hidden_size", "queries"),
    "{layer}mlp.gate_proj.weight": ("intermediate_size", "hidden_size"),
    "{layer}mlp.up_proj.weight": ("intermediate_size", "hidden_size"),
    "{layer}mlp.down_proj.weight": ("hidden_size", "intermediate_size"),
}


def shape_of(name: str, config: dict[str, Any]) -> tuple[int, int] | None:
    """Rows and columns of the matrix of this name; None where config.json says nothing of it. CheckpointError for sizes that it
    lacks, or that cannot be."""
    axes = _SHAPES.get(_LAYER.sub("{layer}", name, count=1))
    if axes is None:
        return None
    entries = Entries(config, "config.json")
    return _size(axes[0], entries), _size(axes[1], entries)


def _size(axis: str, entries: Entries) -> int:
    if axis not in ("queries", "keys"):
        return entries.whole(axis)
    heads = entries.whole("num_attention_heads")
    head_dim = entries.whole("head_dim", entries.whole("hidden_size") // heads or 1)
    return head_dim * (heads if axis == "queries" else entries.whole("num_key_value_heads", heads))
