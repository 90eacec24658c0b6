"""`Config`: a decoder's shape, its rotary embedding, and how it is run."""

from __future__ import annotations

import math
from typing import Any

import attrs
import numpy as np

from iron_core.errors import CheckpointError, ParamError
from iron_lm.checkpoints.entries import Entries, gguf_entries, huggingface_entries, shown

#: What the feed-forward's gate goes through, by `hidden_act`.
ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh"}
#: A context nobody asked for is at most this long.
DEFAULT_CONTEXT = 32768


@attrs.frozen
class Config:
    """A decoder. Sizes count numbers; `max_seq_len` and `prefill_chunk` tokens.

    `rope_scaling` is a Hugging Face `rope_parameters` object of type "llama3" or "linear", or None. `rope_factors` divides
    each frequency instead, where a file carries the factors themselves. `rope_neighbours`: the checkpoint's query and key
    rows are ordered so that rotated pairs are neighbours (GGUF's llama architecture).

    `sliding` says layer by layer which attend to the last `window` tokens alone, the newest among them; with
    `local_rope_base` these have a rotary embedding of their own, unscaled. `score_scale` multiplies query times key
    (1 / sqrt(head_dim) by default), `embedding_scale` the embedded tokens; `logit_cap` bends the logits to within it.
    """

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    max_seq_len: int
    rope_base: float = 10000.0
    rope_scaling: dict[str, Any] | None = None
    rope_factors: tuple[float, ...] | None = None
    rope_neighbours: bool = False
    norm_epsilon: float = 1e-5
    activation: str = "silu"
    embedding_scale: float = 1.0
    score_scale: float | None = None
    logit_cap: float | None = None
    window: int | None = None
    sliding: tuple[bool, ...] = ()
    local_rope_base: float | None = None
    tied: bool = True
    prefill_chunk: int = 64
    dtype: str = "bfloat16"
    cache_dtype: str = "bfloat16"
    activations: str = "exact"
    name: str = ""

    def __attrs_post_init__(self) -> None:
        for field in (
            "vocab_size",
            "hidden_size",
            "num_layers",
            "num_heads",
            "num_kv_heads",
            "head_dim",
            "intermediate_size",
            "max_seq_len",
            "prefill_chunk",
        ):
            if getattr(self, field) < 1:
                raise ParamError(f"Config: {field}={getattr(self, field)}; legal: 1 or more.")
        if self.num_heads % self.num_kv_heads:
            raise ParamError(f"Config: num_kv_heads={self.num_kv_heads} does not divide num_heads={self.num_heads}.")
        if self.head_dim % 2:
            raise ParamError(f"Config: head_dim={self.head_dim} is odd; rotary embedding turns pairs.")
        for field in ("rope_base", "norm_epsilon", "embedding_scale", "score_scale", "logit_cap", "local_rope_base"):
            if getattr(self, field) is not None and not 0 < getattr(self, field) < math.inf:
                raise ParamError(f"Config: {field}={getattr(self, field)}; legal: a positive number.")
        factors = self.rope_factors
        if factors is not None and not (len(factors) == self.head_dim // 2 and all(0 < f < math.inf for f in factors)):
            raise ParamError(f"Config: rope_factors has {len(factors)} numbers; legal: head_dim / 2 = {self.head_dim // 2} positive ones.")
        if self.activation not in ACTIVATIONS.values():
            raise ParamError(f"Config: activation={self.activation!r}; legal: {', '.join(sorted(set(ACTIVATIONS.values())))}.")
        if self.sliding and len(self.sliding) != self.num_layers:
            raise ParamError(f"Config: sliding speaks of {len(self.sliding)} layers; legal: num_layers={self.num_layers}, or none.")
        if any(self.sliding) and (self.window is None or self.window < 2):
            raise ParamError(f"Config: window={self.window} of layers that slide; legal: 2 or more tokens.")
        rope_scaling(self.rope_scaling)
        if self.max_seq_len % self.prefill_chunk:
            raise ParamError(
                f"Config: max_seq_len={self.max_seq_len} is not a multiple of prefill_chunk={self.prefill_chunk}. Nearest: "
                f"{self.max_seq_len // self.prefill_chunk * self.prefill_chunk or self.prefill_chunk}."
            )

    def slides(self, layer: int) -> bool:
        """Does this layer attend to a window alone?"""
        return bool(self.sliding) and self.sliding[layer]

    def angles(self, positions: int | None = None, local: bool = False) -> np.ndarray:
        """float32 (positions, head_dim): cosine and sine of each pair, interleaved (c0, s0, c1, s1, ...).

        local: those of the layers that slide.
        """
        n = self.max_seq_len if positions is None else positions
        turn = np.outer(np.arange(n, dtype=np.float32), inverse_frequencies(self, local)).astype(np.float32).astype(np.float64)
        return np.stack([np.cos(turn), np.sin(turn)], -1).reshape(n, self.head_dim).astype(np.float32)


def inverse_frequencies(config: Config, local: bool = False) -> np.ndarray:
    """float32 (head_dim / 2,): radians each pair turns per position, after scaling. local: in the layers that slide."""
    own = config.local_rope_base if local else None
    exponents = np.arange(0, config.head_dim, 2, dtype=np.float32) / np.float32(config.head_dim)
    inverse = (1.0 / np.float64(own or config.rope_base) ** exponents.astype(np.float64)).astype(np.float32)
    if own is not None:
        return inverse
    if config.rope_factors is not None:
        inverse = (inverse / np.array(config.rope_factors, np.float32)).astype(np.float32)
    scaling = rope_scaling(config.rope_scaling)
    if scaling is None:
        return inverse
    factor = scaling[0]
    if len(scaling) == 1:
        return (inverse / np.float32(factor)).astype(np.float32)
    low, high, original = scaling[1:]
    wavelength = 2 * math.pi / inverse.astype(np.float64)
    smooth = (original / wavelength - low) / (high - low)
    between = (1 - smooth) * inverse / factor + smooth * inverse
    scaled = np.where(wavelength > original / low, inverse / factor, inverse)
    medium = (wavelength <= original / low) & (wavelength >= original / high)
    return np.where(medium, between, scaled).astype(np.float32)


def rope_scaling(raw: dict[str, Any] | None) -> tuple[float, ...] | None:
    """The numbers of a `rope_parameters` object; None where nothing is scaled.

    "linear": (factor,). "llama3": (factor, low_freq_factor, high_freq_factor, original context).
    """
    kind = "default" if raw is None else raw.get("rope_type", raw.get("type", "default"))
    if raw is None or kind == "default":
        return None
    if kind not in ("linear", "llama3"):
        raise CheckpointError(f"rope scaling {kind!r} is not one Iron has. Legal: default, linear, llama3.")
    entries = Entries(raw, "rope scaling")
    factor = entries.number("factor")
    if kind == "linear":
        return (factor,)
    original = entries.number("original_max_position_embeddings")
    low, high = entries.number("low_freq_factor"), entries.number("high_freq_factor")
    if not low < high:
        raise CheckpointError(f"rope scaling: low_freq_factor {low} is not below high_freq_factor {high}.")
    return factor, low, high, original


#: More layers than this is damage, not a model.
_MOST_LAYERS = 1 << 12


def from_huggingface(raw: dict[str, Any], entries: Entries | None = None) -> dict[str, Any]:
    """Config keywords from a decoder's config.json; CheckpointError names what is missing or cannot be.

    entries: as `huggingface_entries` gives them.
    """
    entries = entries or huggingface_entries(raw)
    if "text_config" in raw:
        raise CheckpointError("config.json describes a decoder among other parts (text_config); a GGUF of it holds the decoder alone.")
    for key in ("hidden_act", "hidden_activation"):
        entries.refuse_unless(key, *ACTIVATIONS)
    entries.refuse_unless("attn_logit_softcapping")
    entries.refuse_unless("use_bidirectional_attention", False)
    heads, width = entries.whole("num_attention_heads"), entries.whole("hidden_size")
    layers = entries.whole("num_hidden_layers", most=_MOST_LAYERS)
    sliding = _sliding(entries, layers)
    queries = entries.optional("query_pre_attn_scalar")
    return dict(
        vocab_size=entries.whole("vocab_size"),
        hidden_size=width,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=entries.whole("num_key_value_heads", heads),
        head_dim=entries.whole("head_dim", width // heads or 1),
        intermediate_size=entries.whole("intermediate_size"),
        max_seq_len=entries.whole("max_position_embeddings"),
        **_rotary(entries),
        norm_epsilon=entries.number("rms_norm_eps"),
        activation=ACTIVATIONS[raw.get("hidden_act") or raw.get("hidden_activation") or "silu"],
        score_scale=None if queries is None else queries**-0.5,
        logit_cap=entries.optional("final_logit_softcapping"),
        sliding=sliding,
        window=entries.whole("sliding_window") if sliding else None,
        tied=raw.get("tie_word_embeddings") is True,
        name=str(raw.get("_name_or_path") or raw.get("model_type", "")),
    )


def _rotary(entries: Entries) -> dict[str, Any]:
    """The rotary embedding of config.json: one for all layers, or one for each kind of layer."""
    rope = entries.entries.get("rope_parameters") or entries.entries.get("rope_scaling") or {}
    every, local = rope, None
    if isinstance(rope, dict) and "full_attention" in rope:
        every, local = rope["full_attention"], rope.get("sliding_attention")
    for found in (every, local):
        if not isinstance(found, dict | None):
            raise CheckpointError(f"config.json: rope_parameters is {shown(found)}; legal: an object.")
    every = every or {}
    if rope_scaling(local) is not None:
        raise CheckpointError("config.json: the rotary embedding of the layers that slide is scaled; this model runs it as it is.")
    return dict(
        rope_base=(Entries(every, "config.json") if "rope_theta" in every else entries).number("rope_theta"),
        rope_scaling=every if rope_scaling(every) is not None else None,
        local_rope_base=Entries(local or {}, "config.json").optional("rope_theta") or entries.optional("rope_local_base_freq"),
    )


def _sliding(entries: Entries, layers: int) -> tuple[bool, ...]:
    """Which layers of config.json slide; () where none does."""
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


def every_nth_is_full(layers: int, n: int) -> tuple[bool, ...]:
    """`sliding` of layers of which each n-th, counted from one, sees everything."""
    return tuple((i + 1) % n != 0 for i in range(layers))


def _linear(entries: Entries) -> float | None:
    """By how much a GGUF divides positions, as llama.cpp reads it: linear is the usual type, `rope.scale_linear` the older key."""
    entries.refuse_unless("rope.scaling.type", "none", "linear")
    entries.refuse_unless("rope.scaling.attn_factor", 1.0)
    said = entries.entries.get(f"{entries.prefix}rope.scaling.type")
    if said == "none":
        return None
    for key in ("rope.scaling.factor", "rope.scale_linear"):
        if entries.has(key):
            return None if entries.entries[entries.prefix + key] == 0 else entries.number(key)
    return None if said is None else entries.number("rope.scaling.factor")  # which says that it is not there


def from_gguf(metadata: dict[str, Any], tensors: Any, entries: Entries | None = None) -> dict[str, Any]:
    """Config keywords from a decoder's GGUF metadata; CheckpointError names what is missing or cannot be.

    entries: as `gguf_entries` gives them.
    """
    entries = entries or gguf_entries(metadata)
    factor = _linear(entries)
    entries.refuse_unless("attn_logit_softcapping")
    heads, width = entries.whole("attention.head_count"), entries.whole("embedding_length")
    head_dim = entries.whole("attention.key_length", width // heads or 1)
    entries.refuse_unless("rope.dimension_count", head_dim)
    listed = {*tensors, *getattr(tensors, "refused", ())}  # one of a type Iron does not take is still there
    factors = tensors["rope_freqs.weight"][2] if "rope_freqs.weight" in listed else None
    tokens = metadata.get("tokenizer.ggml.tokens", ())
    rows = tensors["token_embd.weight"][0][0] if "token_embd.weight" in tensors else None
    return dict(
        vocab_size=entries.whole("vocab_size", (len(tokens) if hasattr(tokens, "__len__") else 0) or rows),
        hidden_size=width,
        num_layers=entries.whole("block_count", most=_MOST_LAYERS),
        num_heads=heads,
        num_kv_heads=entries.whole("attention.head_count_kv", heads),
        head_dim=head_dim,
        intermediate_size=entries.whole("feed_forward_length"),
        max_seq_len=entries.whole("context_length"),
        rope_base=entries.number("rope.freq_base"),
        rope_scaling=None if factor is None else {"rope_type": "linear", "factor": factor},
        rope_factors=None if factors is None else tuple(float(f) for f in np.ravel(factors)),
        rope_neighbours=entries.prefix == "llama.",
        norm_epsilon=entries.number("attention.layer_norm_rms_epsilon"),
        score_scale=entries.optional("attention.scale"),
        logit_cap=entries.optional("final_logit_softcapping"),
        tied="output.weight" not in listed,
        name=str(metadata.get("general.name", "")),
    )
