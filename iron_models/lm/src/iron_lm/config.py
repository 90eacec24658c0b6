"""`Config`: a decoder's shape, its rotary embedding, and how it is run."""

from __future__ import annotations

import math
from typing import Any

import attrs
import numpy as np

from iron_core.errors import CheckpointError, ParamError

#: A context nobody asked for is at most this long.
DEFAULT_CONTEXT = 32768


@attrs.frozen
class Config:
    """A decoder. Sizes count numbers; `max_seq_len` and `prefill_chunk` tokens.

    `rope_scaling` is a Hugging Face `rope_parameters` object of type "llama3", or None. `rope_factors` divides each
    frequency instead, where a file carries the factors themselves. `rope_neighbours`: the checkpoint's query and key
    rows are ordered so that rotated pairs are neighbours (GGUF's llama architecture).
    """

    vocab_size: int
    emb_dim: int
    n_layers: int
    n_heads: int
    n_kv_groups: int
    head_dim: int
    hidden_dim: int
    max_seq_len: int
    rope_base: float = 10000.0
    rope_scaling: dict[str, Any] | None = None
    rope_factors: tuple[float, ...] | None = None
    rope_neighbours: bool = False
    norm_epsilon: float = 1e-5
    tied: bool = True
    prefill_chunk: int = 64
    dtype: str = "bfloat16"
    cache_dtype: str = "bfloat16"
    activations: str = "exact"
    name: str = ""

    def __attrs_post_init__(self) -> None:
        for field in ("vocab_size", "emb_dim", "n_layers", "n_heads", "n_kv_groups", "head_dim", "hidden_dim", "max_seq_len", "prefill_chunk"):
            if getattr(self, field) < 1:
                raise ParamError(f"Config: {field}={getattr(self, field)}; legal: 1 or more.")
        if self.n_heads % self.n_kv_groups:
            raise ParamError(f"Config: n_kv_groups={self.n_kv_groups} does not divide n_heads={self.n_heads}.")
        if self.head_dim % 2:
            raise ParamError(f"Config: head_dim={self.head_dim} is odd; rotary embedding turns pairs.")
        for field in ("rope_base", "norm_epsilon"):
            if not 0 < getattr(self, field) < math.inf:
                raise ParamError(f"Config: {field}={getattr(self, field)}; legal: a positive number.")
        factors = self.rope_factors
        if factors is not None and not (len(factors) == self.head_dim // 2 and all(0 < f < math.inf for f in factors)):
            raise ParamError(f"Config: rope_factors has {len(factors)} numbers; legal: head_dim / 2 = {self.head_dim // 2} positive ones.")
        llama3_scaling(self.rope_scaling)
        if self.max_seq_len % self.prefill_chunk:
            raise ParamError(
                f"Config: max_seq_len={self.max_seq_len} is not a multiple of prefill_chunk={self.prefill_chunk}. Nearest: "
                f"{self.max_seq_len // self.prefill_chunk * self.prefill_chunk or self.prefill_chunk}."
            )

    def angles(self, positions: int | None = None) -> np.ndarray:
        """float32 (positions, head_dim): cosine and sine of each pair, interleaved (c0, s0, c1, s1, ...)."""
        n = self.max_seq_len if positions is None else positions
        turn = np.outer(np.arange(n, dtype=np.float32), inverse_frequencies(self)).astype(np.float32).astype(np.float64)
        return np.stack([np.cos(turn), np.sin(turn)], -1).reshape(n, self.head_dim).astype(np.float32)


def inverse_frequencies(config: Config) -> np.ndarray:
    """float32 (head_dim / 2,): radians each pair turns per position, after scaling."""
    exponents = np.arange(0, config.head_dim, 2, dtype=np.float32) / np.float32(config.head_dim)
    inverse = (1.0 / np.float64(config.rope_base) ** exponents.astype(np.float64)).astype(np.float32)
    if config.rope_factors is not None:
        inverse = (inverse / np.array(config.rope_factors, np.float32)).astype(np.float32)
    scaling = llama3_scaling(config.rope_scaling)
    if scaling is None:
        return inverse
    factor, low, high, original = scaling
    wavelength = 2 * math.pi / inverse.astype(np.float64)
    smooth = (original / wavelength - low) / (high - low)
    between = (1 - smooth) * inverse / factor + smooth * inverse
    scaled = np.where(wavelength > original / low, inverse / factor, inverse)
    medium = (wavelength <= original / low) & (wavelength >= original / high)
    return np.where(medium, between, scaled).astype(np.float32)


def llama3_scaling(raw: dict[str, Any] | None) -> tuple[float, float, float, float] | None:
    """(factor, low_freq_factor, high_freq_factor, original context) of `rope_parameters`; None where nothing is scaled."""
    kind = "default" if raw is None else raw.get("rope_type", raw.get("type", "default"))
    if raw is None or kind == "default":
        return None
    if kind != "llama3":
        raise CheckpointError(f"rope scaling {kind!r} is not one Iron has. Legal: default, llama3.")
    entries = _Entries(raw, "rope scaling")
    factor, original = entries.number("factor"), entries.number("original_max_position_embeddings")
    low, high = entries.number("low_freq_factor"), entries.number("high_freq_factor")
    if not low < high:
        raise CheckpointError(f"rope scaling: low_freq_factor {low} is not below high_freq_factor {high}.")
    return factor, low, high, original


class _Entries:
    """What a checkpoint says of its model, each entry checked; `where` and `prefix` name them in errors."""

    def __init__(self, entries: dict[str, Any], where: str, prefix: str = "") -> None:
        self.entries, self.where, self.prefix = entries, where, prefix

    def has(self, key: str) -> bool:
        return self.entries.get(self.prefix + key) is not None

    def number(self, key: str, default: float | None = None) -> float:
        """A positive number."""
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
            raise CheckpointError(f"{self.where}: {self.prefix}{key} is {_shown(value)}; legal: a positive number.")
        return float(value)

    def whole(self, key: str, default: int | None = None, most: int = 1 << 24) -> int:
        """A whole number from 1 to `most`; more is damage, not a model."""
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise CheckpointError(f"{self.where}: {self.prefix}{key} is {_shown(value)}; legal: a whole number from 1 to {most}.")
        return value

    def refuse_unless(self, key: str, *legal: Any) -> None:
        """An entry that may be absent, and changes what the model computes where it is not one of `legal`."""
        if self.has(key) and self.entries[self.prefix + key] not in legal:
            shown = ", ".join(map(str, legal))
            raise CheckpointError(f"{self.where}: {self.prefix}{key} is {_shown(self.entries[self.prefix + key])}; this model runs {shown}.")

    def _value(self, key: str, default: Any) -> Any:
        if self.has(key):
            return self.entries[self.prefix + key]
        if default is None:
            raise CheckpointError(f"{self.where} lacks {self.prefix}{key}.")
        return default


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, (str, int, float)) and len(repr(value)) < 60 else f"a {type(value).__name__}"


#: More layers than this is damage, not a model.
_MOST_LAYERS = 1 << 12


def from_huggingface(raw: dict[str, Any]) -> dict[str, Any]:
    """Config keywords from a config.json of the llama kind; CheckpointError names what is missing or cannot be."""
    entries = _Entries(raw, "config.json")
    entries.refuse_unless("hidden_act", "silu", "swish")
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if not isinstance(rope, dict):
        raise CheckpointError(f"config.json: rope_parameters is {_shown(rope)}; legal: an object.")
    heads, width = entries.whole("num_attention_heads"), entries.whole("hidden_size")
    return dict(
        vocab_size=entries.whole("vocab_size"),
        emb_dim=width,
        n_layers=entries.whole("num_hidden_layers", most=_MOST_LAYERS),
        n_heads=heads,
        n_kv_groups=entries.whole("num_key_value_heads", heads),
        head_dim=entries.whole("head_dim", width // heads or 1),
        hidden_dim=entries.whole("intermediate_size"),
        max_seq_len=entries.whole("max_position_embeddings"),
        rope_base=_Entries(rope, "config.json").number("rope_theta", entries.number("rope_theta", 10000.0)),
        rope_scaling=rope if llama3_scaling(rope) is not None else None,
        norm_epsilon=entries.number("rms_norm_eps"),
        tied=raw.get("tie_word_embeddings") is True,
        name=str(raw.get("_name_or_path") or raw.get("model_type", "")),
    )


def from_gguf(metadata: dict[str, Any], tensors: Any) -> dict[str, Any]:
    """Config keywords from GGUF metadata of the llama architecture; CheckpointError names what is missing or cannot be."""
    architecture = metadata.get("general.architecture")
    entries = _Entries(metadata, "GGUF metadata", f"{architecture}.")
    entries.refuse_unless("rope.scaling.type", "none")
    heads, width = entries.whole("attention.head_count"), entries.whole("embedding_length")
    head_dim = entries.whole("attention.key_length", width // heads or 1)
    entries.refuse_unless("rope.dimension_count", head_dim)
    listed = {*tensors, *getattr(tensors, "refused", ())}  # one of a type Iron does not take is still there
    factors = tensors["rope_freqs.weight"][2] if "rope_freqs.weight" in listed else None
    tokens = metadata.get("tokenizer.ggml.tokens", ())
    return dict(
        vocab_size=entries.whole("vocab_size", len(tokens) or None if hasattr(tokens, "__len__") else None),
        emb_dim=width,
        n_layers=entries.whole("block_count", most=_MOST_LAYERS),
        n_heads=heads,
        n_kv_groups=entries.whole("attention.head_count_kv", heads),
        head_dim=head_dim,
        hidden_dim=entries.whole("feed_forward_length"),
        max_seq_len=entries.whole("context_length"),
        rope_base=entries.number("rope.freq_base", 10000.0),
        rope_factors=None if factors is None else tuple(float(f) for f in np.ravel(factors)),
        rope_neighbours=architecture == "llama",
        norm_epsilon=entries.number("attention.layer_norm_rms_epsilon"),
        tied="output.weight" not in listed,
        name=str(metadata.get("general.name", "")),
    )
