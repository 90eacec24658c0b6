"""From a checkpoint, or none, to a model's config, weights and tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from iron_core import Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Dense, Format
from iron_core.cache.keys import digest, known_sources
from iron_core.declare.formats import SUPERBLOCKS, as_dtype, format_of
from iron_core.errors import CheckpointError, DeclarationError, UsageError, printable
from iron_lm import quantizing
from iron_lm.adapters import Adapters, Asked, adapted
from iron_lm.architecture import Architecture
from iron_lm.arithmetic import arithmetic_of
from iron_lm.checkpoints.checkpoint import Checkpoint, convert, drawn
from iron_lm.checkpoints.fingerprint import fingerprint
from iron_lm.checkpoints.kept import Made, made
from iron_lm.checkpoints.reading import reading
from iron_lm.checkpoints.rearranged import Rearranged
from iron_lm.checkpoints.recognise import architecture, describe, unknown_architecture, unnamed
from iron_lm.checkpoints.row_blocks import row_blocks, row_format
from iron_lm.checkpoints.sources import Names, source_of
from iron_lm.checkpoints.widening import runnable, runs_as, stored_format
from iron_lm.decoder_config import DecoderConfig
from iron_lm.int8 import scale_of
from iron_lm.memory import is_scattered, kept_line, made_bytes, merged_bytes, most, rearranged_bytes, scattered_bytes
from iron_lm.parts.decoder import Decoder
from iron_lm.parts.encoder import Encoder
from iron_lm.parts.fused_product import fused_by
from iron_lm.process import fits, in_words
from iron_lm.run import Run
from iron_lm.text.opening import apart, open_tokenizer
from iron_lm.text.template import ChatTemplate, find_template
from iron_lm.text.tokenizer import Tokenizer

#: Tokens a prompt chunk has, unless the context is shorter or a part gains by more, and of which multiples chunks begin at.
CHUNK = 64
#: The paths of a head's own matrix, and of the table whose rows are tokens.
_HEAD, _TABLE = "head.matrix", "embedding.table"
#: Blocks that random weights may be drawn in, by name.
RANDOM_BLOCKS: dict[str, Format] = {format.name: format for format in (Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, *SUPERBLOCKS)}
#: A context nobody asked for is at most this long.
DEFAULT_CONTEXT = 32768


@attrs.frozen(eq=False)
class Loaded:
    """A model ready to be built. `exact` are the checkpoint's own weights by path, for the twin, and `weights` what runs;
    `context` is the tokens asked for (the caches may have a few more). `stored` says how the weights are kept and
    `recognised` what the checkpoint is, for people."""

    family: type[Architecture]
    config: DecoderConfig
    run: Run
    weights: dict[str, Any]
    exact: dict[str, Any]
    tokenizer: Tokenizer | None
    checkpoint: Checkpoint | None
    context: int
    stored: str
    recognised: str = ""
    assumed: dict[str, Any] = attrs.field(factory=dict)  # entries that the files lack, and what the format takes for them
    beside: Path | None = None  # the tokenizer's file or folder, where it was given apart
    adapters: Adapters = attrs.field(factory=Adapters)

    def model(self, **changes: Any) -> Decoder:
        """The graph, its weights given. changes: to `run`. UsageError for an encoder."""
        if self.config.encodes:
            raise UsageError(f"{self.family.name} encodes texts and continues none. Legal: --embed, or iron_lm.load_encoder().")
        return self._filled(**changes)

    def encoder(self) -> Encoder:
        """The graph of an encoder, its weights given. UsageError for a model that continues text."""
        if not self.config.encodes:
            raise UsageError(f"{self.family.name} continues texts and is no encoder. Legal: iron_lm.load(), whose model has embed() too.")
        return self._filled()

    def _filled(self, **changes: Any) -> Any:
        model = self.build(**changes)
        model.fill(self.weights | self.adapters.held(model))
        return model

    def build(self, **changes: Any) -> Any:
        """The graph without its weights: a `Decoder`, or an `Encoder` where the config encodes."""
        if "prefill_chunk" in changes:
            changes = {"prefill_step": changes["prefill_chunk"]} | changes
        return self.family.build(self.config, attrs.evolve(self.run, **changes))

    def in_blocks(self) -> Loaded:
        """Of a quantised model the same one with its projections in blocks, as they are stored or else of 4 bits."""
        weights = quantizing.in_blocks(self.exact, self.weights)
        formats = {str(format_of(array)) for path, array in weights.items() if array is not self.weights.get(path)}
        return attrs.evolve(self, run=attrs.evolve(self.run, quantize=None), weights=weights, stored=", ".join(sorted(formats)))

    def twin(self, ids: Any, **options: Any) -> np.ndarray:
        """float32 (n, vocab): what the model's twin makes of the checkpoint's own weights, after each of n tokens. options: of that
        twin; a decoder's takes a `dtype` to compute in."""
        return self.build().twin(self.adapters.merged(self.exact), ids, **options)

    def template(self) -> ChatTemplate | None:
        """The chat template, of the checkpoint or beside the tokenizer; None where there is none. CheckpointError for a bad one."""
        return find_template(self.checkpoint, self.tokenizer, self.beside)

    @property
    def whose(self) -> dict[str, str]:
        """What the keys and values of tokens follow from, but for backend and machine, by name: as text, or a digest of it."""
        run = {f"{name} of the run": str(value) for name, value in attrs.asdict(self.run).items()}
        told = {"family": self.family.name, "config": digest(attrs.astuple(self.config)), "weights": fingerprint(self.weights)}
        told |= self.adapters.whose
        return told | run | {"version of Iron": self.cache_key or ""}

    @property
    def cache_key(self) -> str | None:
        """Digest of everything a trace of this model depends on, operators and backend aside: sources, config, the weights'
        names and formats, and the scales that products of integers have. None of a family that a script or a prompt defines, whose
        sources are not known."""
        shapes = [(path, tuple(a.shape), str(format_of(a)), scale_of(a)) for path, a in self.weights.items()]
        package = self.family.__module__.partition(".")[0]
        sources = known_sources("iron_lm", package)
        if sources is None:
            return None
        return digest(sources, fused_by(), attrs.astuple(self.config), attrs.astuple(self.run), shapes, self.adapters.shapes)


def context_of(
    longest: int, asked: int | None, chunk: int | None, usual: int = DEFAULT_CONTEXT, usual_chunk: int = CHUNK
) -> tuple[int, int, int]:
    """(tokens asked for, cache rows, chunk): the context in whole chunks, `usual` or the longest where none is asked for.

    UsageError for a context outside 1 to the model's longest, a chunk outside 1 to the context.
    """
    context = min(longest, usual) if asked is None else asked
    if not isinstance(context, Integral) or not 1 <= context <= longest:
        raise UsageError(f"max_seq_len={context!r}; legal: 1 to {longest}, the model's own.")
    chunk = min(usual_chunk, context) if chunk is None else chunk
    if not isinstance(chunk, Integral) or not 1 <= chunk <= context:
        raise UsageError(f"prefill_chunk={chunk!r}; legal: 1 to max_seq_len={context}.")
    return context, -(-context // chunk) * chunk, chunk


def sized(family: type[Architecture], config: DecoderConfig, asked: int | None, chunk: int | None) -> tuple[int, Run]:
    """The tokens asked for, and a `Run` of a context and a chunk as `context_of` has them, for a model of this config. An encoder takes
    its context in one chunk: UsageError for another. A chunk that nobody asked for is as large as some part gains by, where chunks
    begin within one another; else a turn of a chat would run much of the last chunk again."""
    if config.encodes and chunk is not None:
        raise UsageError(f"prefill_chunk={chunk} of an encoder, which takes texts whole; leave it out.")
    usual = config.usual_context or DEFAULT_CONTEXT
    context, rows, length = context_of(config.max_positions, asked, chunk, usual)
    if config.encodes:
        return context, Run(context, context, own_order=True)
    if chunk is None:
        probe = Run(-(-context // (2 * CHUNK)) * 2 * CHUNK, 2 * CHUNK, prefill_step=CHUNK)
        model = family.asked("build", Decoder, config, probe)
        if model.grid == CHUNK:
            gains = max(part.prompt_chunk for _, part in model.walk())
            gains = min(gains, context // CHUNK * CHUNK)  # whole steps, as arrays take rows
            context, rows, length = context_of(config.max_positions, asked, chunk, usual, max(CHUNK, gains))
    return context, Run(rows, length, prefill_step=length if length % CHUNK else CHUNK)


def load(
    family: type[Architecture],
    checkpoint: str | Path | Checkpoint,
    *,
    tokenizer: str | Path | None = None,
    dtype: str | None = None,
    activations: str | None = None,
    quantize: str | None = None,
    activation_scale: str | None = None,
    max_seq_len: int | None = None,
    prefill_chunk: int | None = None,
    lora: Asked | None = None,
) -> Loaded:
    """A checkpoint, or the one at a path, of one of the family's architectures, with what adapters add. CheckpointError names the
    checkpoint, or the adapter; UsageError what was asked of it."""
    quantized = quantizing.asked(quantize, activation_scale, activations)
    checkpoint = checkpoint if isinstance(checkpoint, Checkpoint) else Checkpoint.open(checkpoint)
    with reading(checkpoint.path):
        loaded = _loaded(checkpoint, family, dtype, activations, quantized, max_seq_len, prefill_chunk)
    loaded = adapted(loaded, lora)
    opened = open_tokenizer(tokenizer, checkpoint, family.tokenizer)
    if opened is not None:
        opened.limit = loaded.config.vocab_size
    return attrs.evolve(loaded, tokenizer=opened, beside=apart(tokenizer))


def _loaded(
    checkpoint: Checkpoint,
    family: type[Architecture],
    dtype: str | None,
    activations: str | None,
    quantized: dict[str, Any],
    max_seq_len: int | None,
    prefill_chunk: int | None,
) -> Loaded:
    config, assumed = _described(checkpoint, family)
    context, probe = sized(family, config, max_seq_len, prefill_chunk)
    shapes = family.asked("build", Encoder if config.encodes else Decoder, config, probe).tensors()
    names = family.asked("names", Mapping, checkpoint.kind, config)
    _check_tied(family, config, shapes, names, checkpoint)
    exact = checkpoint.take(shapes, names, family.ignored.get(checkpoint.kind, ()))
    formats = [(stored_format(array), array.shape) for array in exact.values() if not is_scattered(array)]
    block = most([run for run in (runs_as(format) for format, _ in formats) if run.packed])
    widened = block is None and any(format.packed for format, _ in formats)
    first = _first_matrix(exact)
    run = attrs.evolve(probe, **arithmetic_of(Q8_0 if quantized else block, first, dtype, activations, widened), **quantized)
    parts, rest = quantizing.parted(family.build(config, run), exact, dtype) if quantized else ({}, exact)
    table: Any = exact.get(_TABLE)
    rows_as = None if table is None else row_format(table)
    table_bytes = 0 if rows_as is None else rows_as.nbytes(table.shape)
    new = made_bytes(rest, dtype) + sum(one.nbytes for one in parts.values()) + table_bytes
    narrower = "" if dtype in ("float16", "bfloat16") else "; --dtype float16 or bfloat16 may take half"
    fits(checkpoint.path, "its weights take", new, narrower)
    if rows_as is not None:
        exact[_TABLE] = row_blocks(table)
        rest |= {_TABLE: exact[_TABLE]} if _TABLE in rest else {}
    in_rows, in_no_order = rearranged_bytes(exact), scattered_bytes(exact)
    ordered = _in_order(exact, checkpoint)
    exact |= ordered
    rest |= {path: array for path, array in ordered.items() if path in rest}
    weights = _filling(parts, rest, run, dtype, checkpoint, family, config)
    kept = quantizing.kept_line(parts, exact, rest) if quantized else kept_line(formats, dtype)
    if in_rows:
        kept += f", put in rows ({in_words(in_rows)})"
    if in_no_order:
        kept += f"; matrices in activation order widened to float32 ({in_words(in_no_order)})"
    if merged_bytes(exact):
        kept += f", put together from shards ({in_words(merged_bytes(exact))} of memory)"
    if rows_as is not None:
        kept += f"; the embedding as {rows_as.name} ({in_words(table_bytes)} of memory), for its rows are taken one by one"
    return Loaded(family, config, run, weights, exact, None, checkpoint, context, kept, describe(checkpoint), assumed)


def _in_order(exact: dict[str, Any], checkpoint: Checkpoint) -> dict[str, Any]:
    """Those of a checkpoint's weights that it has in another order than their format's, in that: made once, then kept."""
    wanted = {path: Made(array.format, array.shape, array.packed) for path, array in exact.items() if isinstance(array, Rearranged)}
    return made(wanted, "packed weights in rows", None, checkpoint, "iron_lm")


def _filling(
    parts: dict[str, Made],
    rest: dict[str, Any],
    run: Run,
    dtype: str | None,
    checkpoint: Checkpoint | None,
    family: type[Architecture],
    config: DecoderConfig,
) -> dict[str, Any]:
    """What a model is filled with: what is made for it, and the rest in the formats in which they run."""

    def as_run(array: Any) -> Any:
        if dtype is not None:
            return convert(array, as_dtype(dtype))
        # A quantised model's activations have a dtype that is not its weights'.
        return convert(array, as_dtype(run.dtype)) if run.quantize and len(array.shape) == 1 else runnable(array)

    package = family.__module__.partition(".")[0]
    model = (family.__qualname__, attrs.astuple(config))
    return made(parts, f"{run.quantize} weights", model, checkpoint, package) | {path: as_run(array) for path, array in rest.items()}


def _described(checkpoint: Checkpoint, family: type[Architecture]) -> tuple[DecoderConfig, dict[str, Any]]:
    """The config, and what of it the files do not say: entry -> value."""
    folder = checkpoint.path if checkpoint.path.is_dir() else checkpoint.path.parent
    said_in = {"gguf": checkpoint.path, "meta": folder / "params.json"}.get(checkpoint.kind, folder / "config.json")
    named, says = architecture(checkpoint), "config" in checkpoint.metadata or checkpoint.kind in ("gguf", "meta")
    if says and not named:
        raise CheckpointError(unnamed(checkpoint))
    with reading(said_in):
        if says and named not in family.architectures:
            raise CheckpointError(unknown_architecture(named, family.architectures))
        config, entries = family.described(checkpoint)
    return attrs.evolve(config, name=printable(config.name, 80)), entries.assumed  # it is printed as it is


def _check_tied(family: type[Architecture], config: DecoderConfig, shapes: Any, names: Names, checkpoint: Checkpoint) -> None:
    """DeclarationError for a head with a matrix that the file lacks, where the config says that it is the embedding's table."""
    if not config.tied or _HEAD not in shapes:
        return
    there = {*checkpoint.tensors, *getattr(checkpoint.tensors, "refused", ())}
    if there.intersection(source_of(names, _HEAD).names):
        return
    build = f"{family.__name__}.build() gives a head with a matrix of its own, which {checkpoint.path} does not have"
    raise DeclarationError(f"{build}; legal where config.tied: Head(config.head(), run, embedding).")


def _first_matrix(weights: dict[str, Any]) -> np.dtype:
    """The dtype that the first matrix of the layers has, or computes in."""
    matrix = next(array for path, array in weights.items() if path.startswith("layers.") and len(array.shape) > 1)
    stored = stored_format(matrix)
    return np.dtype(np.float32) if stored.packed else stored.dtype


def random(
    family: type[Architecture],
    config: DecoderConfig,
    seed: int,
    *,
    tokenizer: str | None = None,
    dtype: str | None = None,
    quantize: str | None = None,
    activation_scale: str | None = None,
    max_seq_len: int | None = None,
    prefill_chunk: int | None = None,
) -> Loaded:
    """A model of this config with weights drawn at `seed`. dtype: may also be one of `RANDOM_BLOCKS`, blocks that matrices are drawn
    in, never as numbers, where their rows fill them; the rest is float32, and it runs as a file of such blocks does."""
    if dtype in RANDOM_BLOCKS and quantize is None:
        return _random_blocks(family, config, seed, RANDOM_BLOCKS[dtype], tokenizer, max_seq_len, prefill_chunk)
    kept, quantized = dtype or "bfloat16", quantizing.asked(quantize, activation_scale, None)
    context, probe = sized(family, config, max_seq_len, prefill_chunk)
    block, asked = (Q8_0, dtype) if quantized else (None, kept)
    run = attrs.evolve(probe, **arithmetic_of(block, as_dtype(kept), asked, None), **quantized)
    model = family.build(config, run)
    exact = drawn({path: (shape, Dense(as_dtype(kept))) for path, shape in model.tensors().items()}, seed)
    parts, rest = quantizing.parted(model, exact, dtype) if quantized else ({}, exact)
    weights = _filling(parts, rest, run, asked, None, family, config)
    stored = f"random {kept}" if not quantized else f"random {quantizing.kept_line(parts, exact, rest)}"
    opened = open_tokenizer(tokenizer) if tokenizer else None
    return Loaded(family, config, run, weights, exact, opened, None, context, stored, beside=apart(tokenizer))


def _random_blocks(
    family: type[Architecture],
    config: DecoderConfig,
    seed: int,
    format: Format,
    tokenizer: str | None,
    max_seq_len: int | None,
    prefill_chunk: int | None,
) -> Loaded:
    context, probe = sized(family, config, max_seq_len, prefill_chunk)
    run = attrs.evolve(probe, **arithmetic_of(format, np.dtype(np.float32), None, None))
    shapes = family.build(config, run).tensors()
    dense = Dense(np.dtype(np.float32))
    fills = {path: len(shape) > 1 and shape[-1] % format.block[1] == 0 for path, shape in shapes.items()}
    weights = drawn({path: (shape, format if fills[path] else dense) for path, shape in shapes.items()}, seed)
    opened = open_tokenizer(tokenizer) if tokenizer else None
    return Loaded(family, config, run, weights, weights, opened, None, context, f"random {format.name}", beside=apart(tokenizer))
