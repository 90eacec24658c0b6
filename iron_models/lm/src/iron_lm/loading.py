"""From a checkpoint, or none, to a config, weights and a tokenizer, as a command line asks for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import attrs
import numpy as np

from iron_core import Dense, Format
from iron_core.cache.keys import digest, sources_digest
from iron_core.declare.formats import as_dtype, format_of
from iron_core.errors import CheckpointError, UsageError, printable
from iron_lm import process
from iron_lm.checkpoints.checkpoint import Checkpoint, Layout, as_tree, convert, drawn
from iron_lm.checkpoints.entries import Entries, gguf_entries, huggingface_entries
from iron_lm.checkpoints.reading import reading
from iron_lm.checkpoints.recognise import architecture, describe, unknown_architecture
from iron_lm.checkpoints.widening import Merged, runnable, runs_as, stored_format
from iron_lm.config import DEFAULT_CONTEXT, Config, from_gguf, from_huggingface
from iron_lm.text.tokenizer import Tokenizer, open_tokenizer

#: Tokens a prompt chunk has, unless the context is shorter.
CHUNK = 64
DTYPES = ("bfloat16", "float32", "float16")
#: (kind of checkpoint, what it says of its model, the Config keywords read from that) -> keywords to add or replace.
Details = Callable[[str, Entries, dict[str, Any]], dict[str, Any]]


@attrs.frozen(eq=False)
class Loaded:
    """A model ready to be traced. `exact` are the checkpoint's own weights, for the oracle; `context` is the tokens
    asked for (the caches may have a few more). `stored` says how the weights are kept and `recognised` what the checkpoint
    is, for people."""

    config: Config
    weights: Any
    exact: Any
    tokenizer: Tokenizer | None
    checkpoint: Checkpoint | None
    context: int
    stored: str
    recognised: str = ""
    package: str = "iron_lm"  # the model's own, whose sources decide what is traced too
    assumed: dict[str, Any] = attrs.field(factory=dict)  # entries that the files lack, and what the format takes for them

    @property
    def cache_key(self) -> str:
        """Digest of everything a trace of this model depends on, operators and backend aside: sources, config, the weights'
        names and formats."""
        shapes = [(path, tuple(a.shape), str(format_of(a))) for path, a in flat(self.weights)]
        return digest(sources_digest("iron_lm", self.package), attrs.astuple(self.config), shapes)


def flat(node: Any, path: str = "") -> list[tuple[str, Any]]:
    """(attribute path, array) of a tree of weights."""
    if isinstance(node, SimpleNamespace):
        return [pair for k, v in vars(node).items() for pair in flat(v, f"{path}.{k}" if path else k)]
    if isinstance(node, list):
        return [pair for i, v in enumerate(node) for pair in flat(v, f"{path}.{i}")]
    return [(path, node)]


def context_of(longest: int, asked: int | None, usual: int = DEFAULT_CONTEXT) -> tuple[int, int, int]:
    """(tokens asked for, cache rows, chunk): the context in whole chunks, `usual` or the longest where none is asked for.

    UsageError outside 1 to the model's longest.
    """
    context = min(longest, usual) if asked is None else asked
    if not 1 <= context <= longest:
        raise UsageError(f"max_seq_len={context}; legal: 1 to {longest}, the model's own.")
    chunk = min(CHUNK, context)
    return context, -(-context // chunk) * chunk, chunk


def arithmetic_of(
    block: Format | None, stored: np.dtype, dtype: str | None, activations: str | None, widened: bool = False
) -> dict[str, Any]:
    """Config's dtype, cache_dtype and activations, from the weights' format and what was asked for.

    widened: quantised weights that run as float32.
    """
    if dtype is not None and dtype not in DTYPES:
        raise UsageError(f"dtype={dtype}; legal: {', '.join(DTYPES)}.")
    if activations is not None and activations not in ("exact", "int8_block"):
        raise UsageError(f"activations={activations}; legal: exact, int8_block.")
    if block is not None and dtype is None:
        return dict(dtype="float32", cache_dtype="float16", activations=activations or "int8_block")
    if activations == "int8_block":
        raise UsageError("activations=int8_block needs block-quantised weights; these are widened or dense. Legal: exact.")
    if widened and dtype is None:
        return dict(dtype="float32", cache_dtype="float16", activations="exact")
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
    details: Details | None = None,
    absent: Mapping[str, Any] | None = None,
) -> Loaded:
    """Open a checkpoint of one of these architectures. `layout(kind, tied)` says where its weights are, `details` what the
    config has of the architecture itself, `absent` what transformers takes for entries that config.json leaves out.
    CheckpointError names the checkpoint; UsageError for what was asked of it."""
    checkpoint = Checkpoint.open(path)
    with reading(checkpoint.path):
        loaded = _loaded(checkpoint, layout, architectures, dtype, activations, max_seq_len, details, absent)
    opened = open_tokenizer(tokenizer, checkpoint)
    if opened is not None:
        opened.limit = loaded.config.vocab_size
    return attrs.evolve(loaded, tokenizer=opened)


def _loaded(
    checkpoint: Checkpoint,
    layout: Any,
    architectures: tuple[str, ...],
    dtype: str | None,
    activations: str | None,
    max_seq_len: int | None,
    details: Details | None,
    absent: Mapping[str, Any] | None,
) -> Loaded:
    keywords = _config_keywords(checkpoint, architectures, details, absent)
    assumed = keywords.pop("assumed")
    keywords["name"] = printable(keywords.get("name", ""), 80)  # it is printed as it is
    context, rows, chunk = context_of(keywords["max_seq_len"], max_seq_len, keywords.pop("usual_context", DEFAULT_CONTEXT))
    probe = Config(**{**keywords, "max_seq_len": rows, "prefill_chunk": chunk})
    places: Layout = layout(checkpoint.kind, probe.tied)
    exact = checkpoint.tree(places, probe)
    formats = [(stored_format(array), array.shape) for _, array in flat(exact)]
    block = _most([run for run in (runs_as(format) for format, _ in formats) if run.packed])
    widened = block is None and any(format.packed for format, _ in formats)
    stored = stored_format(exact.layers[0].q)  # type: ignore[union-attr]
    first = np.dtype(np.float32) if stored.packed else stored.dtype
    config = attrs.evolve(probe, **arithmetic_of(block, first, dtype, activations, widened))
    new = _made(formats, dtype) + (0 if dtype not in (None, Dense(first).name) else merged_bytes(exact))
    free = process.available_bytes()
    if free is not None and new > free:
        narrower = "" if dtype in ("float16", "bfloat16") else "; --dtype float16 or bfloat16 may take half"
        raise CheckpointError(f"{checkpoint.path}: its weights widened take {_bytes(new)} of memory; {_bytes(free)} are free{narrower}.")
    weights = _map(exact, runnable if dtype is None else lambda a: convert(a, as_dtype(dtype)))
    kept = kept_line(formats, dtype)
    if merged_bytes(exact):
        kept += f", put together from shards ({_bytes(merged_bytes(exact))} of memory)"
    return Loaded(config, weights, exact, None, checkpoint, context, kept, describe(checkpoint), _package(layout), assumed)


def merged_bytes(weights: Any) -> int:
    """Bytes of the weights whose parts lie in several files."""
    return sum(stored_format(array).nbytes(array.shape) for _, array in flat(weights) if isinstance(array, Merged))


def _most(values: list[Any]) -> Any:
    """The value there is most of, or None."""
    return max(values, key=values.count) if values else None


def _made(formats: list[tuple[Any, tuple[int, ...]]], dtype: str | None) -> int:
    """Bytes of the weights that do not run as the file has them."""
    wide = None if dtype is None else Dense(as_dtype(dtype))
    targets = ((format, wide or runs_as(format), shape) for format, shape in formats)
    return sum(target.nbytes(shape) for format, target, shape in targets if target != format)


def _bytes(n: int) -> str:
    return f"{n / 1e9:.1f} GB" if n >= 1e9 else f"{n / 1e6:.1f} MB"


def kept_line(formats: list[tuple[Any, tuple[int, ...]]], dtype: str | None) -> str:
    """How weights of these formats and shapes are kept, for people; matrices decide, vectors are a trifle."""
    matrices = [(format, shape) for format, shape in formats if len(shape) > 1]
    main = _most([format for format, _ in matrices if format.packed] or [format for format, _ in matrices])
    if dtype is not None:
        names = sorted({format.name for format, _ in matrices if format.packed}) or [main.name]
        return f"{dtype} as in the file" if names == [dtype] else f"{dtype} from {', '.join(names)}"
    changed = {format.name: runs_as(format).name for format, _ in matrices if runs_as(format) != format}
    kept = _most([format for format, _ in matrices if runs_as(format) == format])
    words = [f"{(main if main.name not in changed else kept).name} as in the file"] if kept is not None else []
    for target in sorted(set(changed.values())):
        those = ", ".join(name for name, to in sorted(changed.items()) if to == target)
        size = sum(runs_as(f).nbytes(shape) for f, shape in matrices if changed.get(f.name) == target)
        words.append(f"{those} {'widened to' if target == 'float32' else 'as'} {target} ({_bytes(size)} of memory)")
    return "; ".join(words)


def random(
    config: Config, layout: Any, seed: int, *, tokenizer: str | None = None, dtype: str | None = None, max_seq_len: int | None = None
) -> Loaded:
    """A model of this config with weights drawn at `seed`."""
    kept = dtype or config.dtype
    context, rows, chunk = context_of(config.max_seq_len, max_seq_len)
    config = attrs.evolve(config, max_seq_len=rows, prefill_chunk=chunk, **arithmetic_of(None, as_dtype(kept), kept, None))
    places = layout("safetensors", config.tied).expand(config)
    weights = as_tree(drawn({path: (shape, Dense(as_dtype(kept))) for path, (_, shape) in places.items()}, seed))
    opened = open_tokenizer(tokenizer) if tokenizer else None
    return Loaded(config, weights, weights, opened, None, context, f"random {kept}", package=_package(layout))


def _package(layout: Any) -> str:
    return str(layout.__module__).partition(".")[0]


def _config_keywords(
    checkpoint: Checkpoint, architectures: tuple[str, ...], details: Details | None, absent: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Config's keywords, and what of them the files do not say: "assumed", entry -> value."""
    if checkpoint.kind not in ("gguf", "meta") and "config" not in checkpoint.metadata:
        raise CheckpointError(f"{checkpoint.path}: no config.json beside it; the model's shape is read from there.")
    folder = checkpoint.path if checkpoint.path.is_dir() else checkpoint.path.parent
    with reading({"gguf": checkpoint.path, "meta": folder / "params.json"}.get(checkpoint.kind, folder / "config.json")):
        return _said(checkpoint, architectures, details, absent)


def _said(
    checkpoint: Checkpoint, architectures: tuple[str, ...], details: Details | None, absent: Mapping[str, Any] | None
) -> dict[str, Any]:
    named = architecture(checkpoint)
    if named not in architectures:
        raise CheckpointError(unknown_architecture(named, architectures))
    if checkpoint.kind == "gguf":
        entries = gguf_entries(checkpoint.metadata)
        found = from_gguf(checkpoint.metadata, checkpoint.tensors, entries)
    elif checkpoint.kind == "meta":
        from iron_lm.checkpoints.meta import from_meta, meta_entries

        entries = meta_entries(checkpoint.metadata["params"])
        return from_meta(checkpoint.metadata["params"], checkpoint.tensors, entries) | {"assumed": entries.assumed}
    else:
        entries = huggingface_entries(checkpoint.metadata["config"], absent)
        found = from_huggingface(checkpoint.metadata["config"], entries)
    if details is not None:
        found |= details(checkpoint.kind, entries, found)
    return found | {"assumed": entries.assumed}


def _map(node: Any, change: Any) -> Any:
    if isinstance(node, SimpleNamespace):
        return SimpleNamespace(**{k: _map(v, change) for k, v in vars(node).items()})
    if isinstance(node, list):
        return [_map(v, change) for v in node]
    return change(node)

