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
    scaling = config.rope_scaling
    if scaling is None:
        return inverse
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "default":
        return inverse
    if kind != "llama3":
        raise CheckpointError(f"rope scaling {kind!r} is not one Iron has. Legal: default, llama3.")
    factor, original = float(scaling["factor"]), float(scaling["original_max_position_embeddings"])
    low, high = float(scaling["low_freq_factor"]), float(scaling["high_freq_factor"])
    wavelength = 2 * math.pi / inverse.astype(np.float64)
    smooth = (original / wavelength - low) / (high - low)
    between = (1 - smooth) * inverse / factor + smooth * inverse
    scaled = np.where(wavelength > original / low, inverse / factor, inverse)
    medium = (wavelength <= original / low) & (wavelength >= original / high)
    return np.where(medium, between, scaled).astype(np.float32)


def from_huggingface(raw: dict[str, Any]) -> dict[str, Any]:
    """Config keywords from a config.json of the llama kind; CheckpointError names what is missing."""

    def need(key: str) -> Any:
        if key not in raw:
            raise CheckpointError(f"config.json lacks {key}.")
        return raw[key]

    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    base = rope.get("rope_theta", raw.get("rope_theta"))
    if base is None:
        raise CheckpointError("config.json lacks rope_theta (in itself or in rope_parameters).")
    heads = need("num_attention_heads")
    return dict(
        vocab_size=need("vocab_size"),
        emb_dim=need("hidden_size"),
        n_layers=need("num_hidden_layers"),
        n_heads=heads,
        n_kv_groups=raw.get("num_key_value_heads", heads),
        head_dim=raw.get("head_dim") or need("hidden_size") // heads,
        hidden_dim=need("intermediate_size"),
        max_seq_len=need("max_position_embeddings"),
        rope_base=float(base),
        rope_scaling=rope if rope.get("rope_type", rope.get("type", "default")) != "default" else None,
        norm_epsilon=float(need("rms_norm_eps")),
        tied=bool(raw.get("tie_word_embeddings", False)),
        name=str(raw.get("_name_or_path") or raw.get("model_type", "")),
    )


def from_gguf(metadata: dict[str, Any], tensors: Any) -> dict[str, Any]:
    """Config keywords from GGUF metadata of the llama architecture; CheckpointError names what is missing."""
    architecture = metadata.get("general.architecture")

    def need(key: str) -> Any:
        if f"{architecture}.{key}" not in metadata:
            raise CheckpointError(f"GGUF metadata lacks {architecture}.{key}.")
        return metadata[f"{architecture}.{key}"]

    heads, width = int(need("attention.head_count")), int(need("embedding_length"))
    vocabulary = metadata.get(f"{architecture}.vocab_size") or len(metadata.get("tokenizer.ggml.tokens", ()))
    factors = tuple(float(f) for f in tensors["rope_freqs.weight"][2]) if "rope_freqs.weight" in tensors else None
    return dict(
        vocab_size=int(vocabulary),
        emb_dim=width,
        n_layers=int(need("block_count")),
        n_heads=heads,
        n_kv_groups=int(metadata.get(f"{architecture}.attention.head_count_kv", heads)),
        head_dim=int(metadata.get(f"{architecture}.attention.key_length", width // heads)),
        hidden_dim=int(need("feed_forward_length")),
        max_seq_len=int(need("context_length")),
        rope_base=float(metadata.get(f"{architecture}.rope.freq_base", 10000.0)),
        rope_factors=factors,
        rope_neighbours=architecture == "llama",
        norm_epsilon=float(need("attention.layer_norm_rms_epsilon")),
        tied="output.weight" not in tensors,
        name=str(metadata.get("general.name", "")),
    )
