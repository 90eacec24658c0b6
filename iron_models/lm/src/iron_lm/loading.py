"""From a checkpoint, or none, to a config, weights and a tokenizer, as a command line asks for them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import attrs
import numpy as np

from iron_core.declare.formats import BlockQuant, Dense, as_dtype, format_of
from iron_core.errors import CheckpointError, ParamError, UsageError
from iron_core.image.cache import digest, sources_digest
from iron_lm.checkpoint import Checkpoint, Layout, as_tree, convert, drawn
from iron_lm.config import DEFAULT_CONTEXT, Config, from_gguf, from_huggingface
from iron_lm.tokenizer import Tokenizer, open_tokenizer

#: Tokens a prompt chunk has, unless the context is shorter.
CHUNK = 64
DTYPES = ("bfloat16", "float32", "float16")


@attrs.frozen(eq=False)
class Loaded:
    """A model ready to be traced. `exact` are the checkpoint's own weights, for the oracle; `context` is the tokens
    asked for (the caches may have a few more). `stored` says how the weights are kept, for people."""

    config: Config
    weights: Any
    exact: Any
    tokenizer: Tokenizer | None
    checkpoint: Checkpoint | None
    context: int
    stored: str

    @property
    def cache_key(self) -> str:
        """Digest of everything a trace of this model depends on: sources, config, the weights' names and formats."""
        shapes = [(path, tuple(a.shape), str(format_of(a))) for path, a in flat(self.weights)]
        return digest(sources_digest("iron_lm", "iron_llama", "iron_ops_aie", "iron_host"), attrs.astuple(self.config), shapes)


def flat(node: Any, path: str = "") -> list[tuple[str, Any]]:
    """(attribute path, array) of a tree of weights."""
    if isinstance(node, SimpleNamespace):
        return [pair for k, v in vars(node).items() for pair in flat(v, f"{path}.{k}" if path else k)]
    if isinstance(node, list):
        return [pair for i, v in enumerate(node) for pair in flat(v, f"{path}.{i}")]
    return [(path, node)]


def context_of(longest: int, asked: int | None) -> tuple[int, int, int]:
    """(tokens asked for, cache rows, chunk): the context in whole chunks. UsageError outside 1 to the model's longest."""
    context = min(longest, DEFAULT_CONTEXT) if asked is None else asked
    if not 1 <= context <= longest:
        raise UsageError(f"max_seq_len={context}; legal: 1 to {longest}, the model's own.")
    chunk = min(CHUNK, context)
    return context, -(-context // chunk) * chunk, chunk


def arithmetic_of(block: BlockQuant | None, stored: np.dtype, dtype: str | None, activations: str | None) -> dict[str, Any]:
    """Config's dtype, cache_dtype and activations, from the weights' format and what was asked for."""
    if dtype is not None and dtype not in DTYPES:
        raise UsageError(f"dtype={dtype}; legal: {', '.join(DTYPES)}.")
    if activations is not None and activations not in ("exact", "int8_block"):
        raise UsageError(f"activations={activations}; legal: exact, int8_block.")
    if block is not None and dtype is None:
        return dict(dtype="float32", cache_dtype="float16", activations=activations or "int8_block")
    if activations == "int8_block":
        raise UsageError("activations=int8_block needs block-quantised weights; these are widened or dense. Legal: exact.")
    kept = dtype or Dense(stored).name
    # float16 is stored, never computed with.
    return dict(dtype="float32" if kept == "float16" else kept, cache_dtype=kept, activations="exact")


def load(
    layout: Any,
    architectures: tuple[str, ...],
    path: str,
    *,
    tokenizer: str | None = None,
    dtype: str | None = None,
    activations: str | None = None,
    max_seq_len: int | None = None,
) -> Loaded:
    """Open a checkpoint of one of these architectures. `layout(kind, tied)` says where its weights are."""
    checkpoint = Checkpoint.open(path)
    keywords = _config_keywords(checkpoint, architectures)
    context, rows, chunk = context_of(keywords["max_seq_len"], max_seq_len)
    try:
        probe = Config(**{**keywords, "max_seq_len": rows, "prefill_chunk": chunk})
    except ParamError as error:
        raise CheckpointError(f"{checkpoint.path}: {error}") from None
    places: Layout = layout(checkpoint.kind, probe.tied)
    exact = checkpoint.tree(places, probe)
    block = checkpoint.block_format
    stored = np.dtype(np.float32)
    if block is None:
        stored = format_of(exact.layers[0].q).dtype  # type: ignore[union-attr]
    config = attrs.evolve(probe, **arithmetic_of(block, stored, dtype, activations))
    weights = exact if dtype is None else _map(exact, lambda a: convert(a, as_dtype(dtype)))
    found = block.name if block else Dense(stored).name
    kept = f"{found} as in the file" if dtype in (None, found) else f"{dtype} from {found}"
    return Loaded(config, weights, exact, open_tokenizer(tokenizer, checkpoint), checkpoint, context, kept)


def random(config: Config, layout: Any, seed: int, *, tokenizer: str | None = None, dtype: str | None = None, max_seq_len: int | None = None) -> Loaded:
    """A model of this config with weights drawn at `seed`."""
    kept = dtype or config.dtype
    context, rows, chunk = context_of(config.max_seq_len, max_seq_len)
    config = attrs.evolve(config, max_seq_len=rows, prefill_chunk=chunk, **arithmetic_of(None, as_dtype(kept), kept, None))
    places = layout("safetensors", config.tied).expand(config)
    weights = as_tree(drawn({path: (shape, Dense(as_dtype(kept))) for path, (_, shape) in places.items()}, seed))
    opened = open_tokenizer(tokenizer) if tokenizer else None
    return Loaded(config, weights, weights, opened, None, context, f"random {kept}")


def _config_keywords(checkpoint: Checkpoint, architectures: tuple[str, ...]) -> dict[str, Any]:
    if checkpoint.kind == "gguf":
        found = str(checkpoint.metadata.get("general.architecture"))
    else:
        if "config" not in checkpoint.metadata:
            raise CheckpointError(f"{checkpoint.path}: no config.json beside it; the model's shape is read from there.")
        found = str(checkpoint.metadata["config"].get("model_type"))
    if found not in architectures:
        raise CheckpointError(f"{checkpoint.path}: architecture {found!r}. This model runs: {', '.join(architectures)}.")
    try:
        if checkpoint.kind == "gguf":
            return from_gguf(checkpoint.metadata, checkpoint.tensors)
        return from_huggingface(checkpoint.metadata["config"])
    except CheckpointError as error:
        raise CheckpointError(f"{checkpoint.path}: {error}") from None


def _map(node: Any, change: Any) -> Any:
    if isinstance(node, SimpleNamespace):
        return SimpleNamespace(**{k: _map(v, change) for k, v in vars(node).items()})
    if isinstance(node, list):
        return [_map(v, change) for v in node]
    return change(node)

