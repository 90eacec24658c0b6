"""`Embedding`: the texts of a file as vectors in another, which goes on where it was cut short."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from uuid import uuid4

import attrs
import numpy as np

from iron_core.cache.keys import digest
from iron_core.errors import UsageError, printable
from iron_lm.checkpoints.identity import identity
from iron_lm.embedder import Embedder, pooling_of, shortened
from iron_lm.encoding import EncoderModel, vectorising
from iron_lm.loading import Loaded
from iron_lm.vectors.layout import header
from iron_lm.vectors.texts import read_texts, refuse
from iron_lm.vectors.unfinished import UnfinishedVectors

#: Texts after which it is noted how far it is.
BATCH = 64


@attrs.frozen
class Embedded:
    """What was written: the file, its vectors (`kept`: of an earlier attempt that was cut short), their numbers, how they were pooled."""

    path: str
    vectors: int
    kept: int
    dims: int
    pooling: str


class Embedding:
    """The texts of a file of JSON lines as float32 vectors in `out`, row for line. Those of like length are made one after another.

    UsageError for an `out` that is there (replace: it goes when the new one is whole), for a pooling or dims that cannot be, and for
    lines that are no text or are too long, by number; truncate: those are cut.
    """

    def __init__(
        self,
        loaded: Loaded,
        texts: str | Path,
        out: str | Path,
        *,
        field: str = "text",
        pooling: str | None = None,
        dims: int | None = None,
        truncate: bool = False,
        replace: bool = False,
    ) -> None:
        self.loaded, self.replace = loaded, replace
        self.out = Path(os.path.abspath(out))
        self.pooling, self.dims = pooling_of(loaded, pooling, dims), dims
        self.width = dims or loaded.config.vector_size
        header(self.out, 1, self.width)
        if not self.out.parent.is_dir():
            raise UsageError(f"--out {printable(self.out)}: {printable(self.out.parent)} is no folder; legal: a name in one that is there.")
        if os.path.lexists(self.out) and (not replace or self.out.is_dir()):
            raise UsageError(f"--out {printable(self.out)} is there already; legal: a new name, or --force, which replaces a file.")
        self.ids = _ids(loaded, texts, read_texts(texts, field), truncate)
        order = np.argsort([len(ids) for ids in self.ids], kind="stable")
        batches = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
        self.unfinished = UnfinishedVectors(self.out, header(self.out, len(self.ids), self.width), self.width, batches, "")

    def run(self, **options: Any) -> Embedded:
        """Compile the model and write what is not there yet. options: of `Graph.compile`."""
        model = vectorising(self.loaded, self.pooling, **options)
        unfinished = self.unfinished
        unfinished.key = self._key(model)
        unfinished.write(lambda rows: model.vectors([self.ids[row] for row in rows], self.dims), self.replace)
        return Embedded(str(self.out), len(self.ids), unfinished.kept, self.width, self.pooling)

    @property
    def progress(self) -> str:
        """How far it is, for people."""
        return f"{self.unfinished.done} of {len(self.ids)} texts"

    def _key(self, model: Embedder | EncoderModel) -> str:
        """Digest of all that decides the numbers; of this attempt alone where the family's sources are not known."""
        loaded = self.loaded
        read = None if loaded.checkpoint is None else identity(loaded.checkpoint).digest
        return digest(
            loaded.cache_key or uuid4().hex, read, self.ids, self.pooling, self.width, model.backend.name, str(model.compiled.dev)
        )


def _ids(loaded: Loaded, path: str | Path, texts: list[str], truncate: bool) -> list[list[int]]:
    """Ids of each text. UsageError for those that are too long and not to be cut, by the numbers of their lines."""
    if loaded.tokenizer is None:
        raise UsageError("embed: this checkpoint has no tokenizer; legal: one that has, or --tokenizer FILE.")
    encode = loaded.tokenizer.encode_whole if loaded.config.encodes else loaded.tokenizer.encode
    found, most = [encode(text) for text in texts], loaded.context
    found = [shortened(loaded, ids) for ids in found] if truncate else found
    legal = f"legal: 1 to max_seq_len={most}"
    refuse(path, {n: f"has {len(ids)} tokens ({legal})" for n, ids in enumerate(found, 1) if not 1 <= len(ids) <= most})
    return found
