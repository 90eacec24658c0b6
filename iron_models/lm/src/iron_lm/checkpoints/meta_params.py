"""Meta's params.json: keywords of a config."""

from __future__ import annotations

from typing import Any

from iron_core.errors import CheckpointError
from iron_lm.checkpoints.entries import MOST_LAYERS, Entries
from iron_lm.checkpoints.meta import PARAMS, SCALED
from iron_lm.parts.rotary import RotaryConfig

_KNOWN = (
    "dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size", "multiple_of", "ffn_dim_multiplier", "norm_eps", "rope_theta",
    "use_scaled_rope", "rope_scaling_factor", "rope_high_freq_factor", "head_dim", "hidden_dim", "max_seq_len", "max_batch_size",
)  # fmt: skip
#: What Meta's first program, which wrote these, had instead of an entry.
_DEFAULTS = {"rope_theta": 10000.0, "norm_eps": 1e-5}
#: Tokens a cache holds where nobody asks: params.json does not say how long a context may be, and every Llama takes these.
USUAL_CONTEXT = 2048
_MOST_CONTEXT = 1 << 20
#: What else `use_scaled_rope` stands for in Meta's own program: the high and low factors, the original context.
_HIGH, _LOW, _ORIGINAL = 4.0, 1.0, 8192.0


def entries_of(params: dict[str, Any]) -> Entries:
    """What params.json says."""
    return Entries(params, PARAMS, defaults=_DEFAULTS)


def decoder(entries: Entries, tensors: Any) -> dict[str, Any]:
    """`DecoderConfig`'s keywords, and `usual_context` where no longest context is named; CheckpointError names what is missing
    or cannot be. tensors: the folder's, by name."""
    params = entries.entries
    unknown = sorted(set(params) - set(_KNOWN))
    if unknown:
        raise CheckpointError(f"{PARAMS}: {unknown[0][:40]!r} is nothing this model has. Legal: {', '.join(_KNOWN)}.")
    heads, width = entries.whole("n_heads"), entries.whole("dim")
    scaled = params.get("use_scaled_rope", False)
    if not isinstance(scaled, bool):
        raise CheckpointError(f"{PARAMS}: use_scaled_rope is {str(scaled)[:40]!r}; legal: true, false.")
    factor = entries.number("rope_scaling_factor", SCALED)
    high = entries.number("rope_high_freq_factor", _HIGH)
    head_dim = entries.whole("head_dim", width // heads or 1)
    scaling = ("llama3", (factor, _LOW, high, _ORIGINAL)) if scaled else None
    return dict(
        vocab_size=_rows(tensors, "tok_embeddings.weight"),
        hidden_size=width,
        num_layers=entries.whole("n_layers", most=MOST_LAYERS),
        num_heads=heads,
        num_kv_heads=entries.whole("n_kv_heads", heads),
        head_dim=head_dim,
        intermediate_size=_rows(tensors, "layers.0.feed_forward.w1.weight"),
        max_positions=entries.whole("max_seq_len", _MOST_CONTEXT),
        **({} if entries.has("max_seq_len") else {"usual_context": USUAL_CONTEXT}),
        rotary=RotaryConfig(head_dim, entries.number("rope_theta"), scaling, neighbours=True),
        norm_epsilon=entries.number("norm_eps"),
        tied="output.weight" not in tensors,
    )


def _rows(tensors: Any, name: str) -> int:
    if name not in tensors:
        raise CheckpointError(f"{name} is missing; {PARAMS} does not say how large it is.")
    return int(tensors[name][0][0])
