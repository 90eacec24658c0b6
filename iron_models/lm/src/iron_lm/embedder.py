"""`Embedder`: a model that continues text, and gives vectors of texts."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np

from iron_core.cache.keys import digest
from iron_core.errors import BoundsError, UsageError, printable
from iron_core.turn import Turn
from iron_lm.finite import not_finite
from iron_lm.loading import Loaded
from iron_lm.parts.hidden import hidden_of
from iron_lm.parts.pooling import POOLINGS
from iron_lm.running import Running
from iron_lm.tunables import tuned

#: In a causal model the last token alone has seen the whole text.
USUAL = "last"


class Embedder(Running):
    """A model loaded, its last norm's output compiled for a backend. Threads may share it: each text is whole, one after another."""

    def __init__(self, loaded: Loaded, pooling: str | None = None, **options: Any) -> None:
        """pooling: of vectors where a call does not name one. options: of `Graph.compile`."""
        self.pooling = pooling_of(loaded, pooling, None)
        self.model = loaded.model()
        key = loaded.cache_key
        with tuned(loaded.family, options.get("backend"), options.get("dev")):
            compiled = hidden_of(self.model).compile(
                ids=((self.model.run.prefill_chunk,), np.int32), cache_key=None if key is None else digest(key, "hidden"), **options
            )
        super().__init__(loaded, compiled)
        compiled.load()
        self._turn = Turn("an embedder")

    def embed(
        self, texts: str | Sequence[str], *, pooling: str | None = None, dims: int | None = None, truncate: bool = False
    ) -> np.ndarray:
        """float32 (texts, dims): a vector of length 1 for each text.

        pooling: which tokens' hidden states it is made of: "last", "mean" or "cls", the first. dims: its first numbers alone,
        for models that were trained for that (Matryoshka); all by default. truncate: cut a text that is too long, instead of
        refusing it. UsageError for what cannot be.
        """
        return self.vectors(tokens_of(self.loaded, (texts,) if isinstance(texts, str) else texts, truncate), dims, pooling)

    def vectors(self, ids: Sequence[Sequence[int]], dims: int | None = None, pooling: str | None = None) -> np.ndarray:
        """As `embed`, of texts that are ids already."""
        pooling = pooling_of(self.loaded, self.pooling if pooling is None else pooling, dims)
        return np.stack([unit(POOLINGS[pooling](self.states(each)), dims) for each in ids_of(self.loaded, ids)])

    def states(self, ids: Sequence[int]) -> np.ndarray:
        """float32 (n, hidden_size): what the last norm gives for each of n tokens. CheckpointError where it is not finite."""
        found, base, chunk = [], 0, self.model.run.prefill_chunk
        with self._turn:
            for start in range(0, len(ids), chunk):
                part = ids[start : start + chunk]
                row = np.zeros(chunk, np.int32)
                row[: len(part)] = part
                if (needed := self.model.base(start)) > base:
                    self.model.slide(self.compiled, needed - base)
                    base = needed
                where = self.model.where(start + len(part) - 1)
                found.append(np.array(self.compiled(row, chunk=start // self.model.run.prefill_step, rows=len(part), **where), np.float32))
        states = np.concatenate(found)
        if not np.isfinite(states).all():
            raise not_finite("the hidden states are")
        return states


def tokens_of(loaded: Loaded, texts: Sequence[str], truncate: bool = False) -> list[list[int]]:
    """Ids of each text, as the model takes it. UsageError for none, for what is no text, and for one that is empty or, unless it is to
    be cut, too long."""
    if loaded.tokenizer is None:
        raise UsageError("embed: this checkpoint has no tokenizer; legal: one that has, or a tokenizer given beside it.")
    if not isinstance(texts, Sequence) or not texts or not all(isinstance(text, str) for text in texts):
        raise UsageError(f"embed: texts={printable(repr(texts), 60)}; legal: a text, or a sequence of some.")
    encode = loaded.tokenizer.encode_whole if loaded.config.encodes else loaded.tokenizer.encode
    found = [encode(text) if text else [] for text in texts]
    if truncate:
        found = [shortened(loaded, ids) for ids in found]
    for number, ids in enumerate(found, 1):
        if not 1 <= len(ids) <= loaded.context:
            raise UsageError(f"embed: text {number} has {len(ids)} tokens; legal: 1 to max_seq_len={loaded.context}.")
    return found


def ids_of(loaded: Loaded, texts: Sequence[Sequence[int]]) -> list[list[int]]:
    """Texts given as their ids, checked. UsageError for none, for what is no text, and for one that is empty or too long; BoundsError
    for an id that there is not."""
    legal = "legal: one text or more, each a sequence of ids"
    if not isinstance(texts, Sequence | np.ndarray) or isinstance(texts, str | bytes) or not len(texts):
        raise UsageError(f"embed: ids={printable(repr(texts), 60)}; {legal}.")
    most, vocab = loaded.context, loaded.config.vocab_size
    found = []
    for text in texts:
        try:
            ids = np.asarray(text)
        except ValueError:  # lists of several lengths
            raise UsageError(f"embed: ids={printable(repr(text), 60)}; {legal}.") from None
        if ids.ndim != 1 or (len(ids) and ids.dtype.kind not in "iu"):
            raise UsageError(f"embed: ids={printable(repr(text), 60)}; {legal}.")
        if not 1 <= len(ids) <= most:
            raise UsageError(f"embed: {len(ids)} tokens; legal: 1 to max_seq_len={most}.")
        if not (0 <= ids.min() and ids.max() < vocab):
            place = int(np.argmax((ids < 0) | (ids >= vocab)))
            raise BoundsError(f"embed: id {ids[place]} at place {place}; legal: 0 to {vocab - 1}, of a vocabulary of {vocab}.")
        found.append(ids.tolist())
    return found


def shortened(loaded: Loaded, ids: list[int]) -> list[int]:
    """Ids of a text, as many as the model takes: the first ones, and behind them what an encoder's text ends with."""
    most = loaded.context
    if len(ids) <= most:
        return ids
    after = loaded.tokenizer.after[:most] if loaded.tokenizer is not None and loaded.config.encodes else ()
    return [*ids[: most - len(after)], *after]


def pooling_of(loaded: Loaded, pooling: str | None, dims: int | None) -> str:
    """The pooling, the usual one where none is named. UsageError for one there is not, and for more numbers than a vector has."""
    pooling = loaded.config.pooling or USUAL if pooling is None else pooling
    if pooling not in POOLINGS:
        raise UsageError(f"embed: pooling={pooling!r}; legal: {', '.join(POOLINGS)}.")
    most = loaded.config.vector_size
    if dims is not None and not (isinstance(dims, Integral) and not isinstance(dims, bool) and 1 <= dims <= most):
        raise UsageError(f"embed: dims={dims!r}; legal: 1 to {most}, the model's own.")
    return pooling


def unit(whole: np.ndarray, dims: int | None = None) -> np.ndarray:
    """float32 (dims,): the first numbers of a vector, of length 1; all zeros where those are."""
    cut = whole.astype(np.float64)[:dims]
    length = float(np.linalg.norm(cut))
    return (cut / length if length else cut).astype(np.float32)
