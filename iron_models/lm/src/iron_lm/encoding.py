"""`EncoderModel` and `load_encoder`: an encoder from Python, which makes vectors of texts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from iron_core import Backend
from iron_core.errors import BoundsError, CheckpointError, UsageError
from iron_core.turn import Turn
from iron_lm.architecture import Architecture
from iron_lm.embedder import Embedder, pooling_of, tokens_of, unit
from iron_lm.loading import Loaded
from iron_lm.model import opened
from iron_lm.running import Running
from iron_lm.tunables import tuned


class EncoderModel(Running):
    """An encoder loaded, and compiled once for a backend, for texts of 1 to `max_seq_len` tokens. `load_encoder()` makes it.

    Threads may share it: each text is whole, one after another.
    """

    def __init__(self, loaded: Loaded, pooling: str | None = None, **options: Any) -> None:
        """pooling: another than the checkpoint's own. options: of `Graph.compile`."""
        loaded = pooled(loaded, pooling)
        super().__init__(loaded, compiled(loaded, **options))
        self.compiled.load()
        self._turn = Turn("an encoder")

    def embed(self, texts: str | Sequence[str], *, dims: int | None = None, truncate: bool = False) -> np.ndarray:
        """float32 (texts, dims): a vector of length 1 for each text.

        dims: its first numbers alone, for models that were trained for that (Matryoshka); all by default. truncate: cut a text
        that is longer than `max_seq_len`. UsageError for what cannot be, such a text among it without.
        """
        return self.vectors(tokens_of(self.loaded, (texts,) if isinstance(texts, str) else texts, truncate), dims)

    def vectors(self, ids: Sequence[Sequence[int]], dims: int | None = None) -> np.ndarray:
        """As `embed`, of texts that are ids already. BoundsError for an id that there is not."""
        pooling_of(self.loaded, None, dims)
        return np.stack([unit(self.vector(each), dims) for each in ids])

    def vector(self, ids: Sequence[int]) -> np.ndarray:
        """float32: what the model makes of a text's ids, of any length. CheckpointError where it is not finite."""
        n, most, vocab = len(ids), self.loaded.context, self.config.vocab_size
        if not 1 <= n <= most:
            raise UsageError(f"embed: {n} tokens; legal: 1 to max_seq_len={most}.")
        row = np.zeros(most, np.int32)
        for place, id in enumerate(ids):
            if not 0 <= id < vocab:
                raise BoundsError(f"embed: id {id} at place {place}; legal: 0 to {vocab - 1}, of a vocabulary of {vocab}.")
        row[:n] = ids
        with self._turn:
            found = np.array(self.compiled(row, rows=n), np.float32).reshape(-1)
        if not np.isfinite(found).all():
            raise CheckpointError("the vector is not finite: the weights hold NaN or infinity, or overflow the dtype they run in.")
        return found


def pooled(loaded: Loaded, pooling: str | None) -> Loaded:
    """An encoder with another pooling. UsageError for one there is not, and for a model that is no encoder."""
    if not loaded.config.encodes or pooling is None:
        return loaded
    return attrs.evolve(loaded, config=attrs.evolve(loaded.config, pooling=pooling_of(loaded, pooling, None)))


def compiled(loaded: Loaded, **options: Any) -> Any:
    """The graph of a loaded encoder, compiled and not loaded. options: of `Graph.compile`."""
    with tuned(loaded.family, options.get("backend"), options.get("dev")):
        return loaded.encoder().compile(ids=((loaded.run.max_seq_len,), np.int32), cache_key=loaded.cache_key, **options)


def vectorising(loaded: Loaded, pooling: str | None, **options: Any) -> Embedder | EncoderModel:
    """What makes vectors of texts by a loaded model, an encoder or another. options: of `Graph.compile`."""
    return (EncoderModel if loaded.config.encodes else Embedder)(loaded, pooling, **options)


def load_encoder(
    family: str | Path | type[Architecture] | None,
    path: str | Path | None = None,
    /,
    *,
    pooling: str | None = None,
    tokenizer: str | Path | None = None,
    dtype: str | None = None,
    max_seq_len: int | None = None,
    backend: str | Backend | None = None,
    dev: str | None = None,
) -> EncoderModel:
    """`load_encoder(path)` or `load_encoder(family, path)`: open an encoder's checkpoint and compile it. pooling: "mean", "cls" or
    "last" instead of the checkpoint's own; the rest is as `load` has it, and so are the errors."""
    loaded = opened(family, path, tokenizer=tokenizer, dtype=dtype, max_seq_len=max_seq_len, backend=backend, dev=dev)
    return EncoderModel(loaded, pooling, backend=backend, dev=dev)
