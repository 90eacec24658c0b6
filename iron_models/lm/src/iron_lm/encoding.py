"""`EncoderModel` and `load_encoder`: an encoder from Python, which makes vectors of texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from iron_core import Backend
from iron_core.backends.choose import choose
from iron_core.cache.keys import digest
from iron_core.devices import device
from iron_core.turn import Turn
from iron_lm.architecture import Architecture
from iron_lm.embedder import Embedder, ids_of, pooling_of, tokens_of, unit
from iron_lm.finite import not_finite
from iron_lm.loading import Loaded
from iron_lm.opening import opened
from iron_lm.parts.texts import Texts, laid_out, takes_several
from iron_lm.running import Running
from iron_lm.tunables import tuned

#: Ids, and texts, that share a call: more ids leave the caches, and few more are worth no more.
ROOM, TEXTS = 1024, 64


class EncoderModel(Running):
    """An encoder loaded, and compiled once for a backend, for texts of 1 to `max_seq_len` tokens. `load_encoder()` makes it.

    Where the encoder takes several texts at once (`parts.texts`), and no array has to be made for that, texts share a call as they
    fit; a vector is the same in any company. Threads may share it: each call is whole, one after another.
    """

    def __init__(self, loaded: Loaded, pooling: str | None = None, **options: Any) -> None:
        """pooling: another than the checkpoint's own. options: of `Graph.compile`."""
        loaded = pooled(loaded, pooling)
        together = texts_of(loaded, **options)
        super().__init__(loaded, compiled(loaded, **options) if together is None else together)
        self.compiled.load()
        self._together = together is not None
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
        return np.stack([unit(made, dims) for group in self._groups(ids_of(self.loaded, ids)) for made in self._vectors(group)])

    def vector(self, ids: Sequence[int]) -> np.ndarray:
        """float32: what the model makes of a text's ids, of any length. CheckpointError where it is not finite."""
        return np.asarray(self._vectors(ids_of(self.loaded, [ids]))[0])

    def _groups(self, texts: Sequence[Sequence[int]]) -> Iterator[list[Sequence[int]]]:
        """Texts that share a call, in order."""
        group: list[Sequence[int]] = []
        for ids in texts:
            if group and (not self._together or len(group) == TEXTS or sum(map(len, group)) + len(ids) > room_of(self.loaded)):
                yield group
                group = []
            group.append(ids)
        if group:
            yield group

    def _vectors(self, texts: Sequence[Sequence[int]]) -> np.ndarray:
        """Those of one call, (texts, width)."""
        rows = sum(map(len, texts))
        counts = {"rows": rows}
        if self._together and self.config.pooling is not None:
            given, counts["texts"] = laid_out(texts, room_of(self.loaded), TEXTS, self.config.pooling), len(texts)
        else:
            row = np.zeros(self.loaded.context, np.int32)
            row[:rows] = texts[0]
            given = (row,)
        with self._turn:
            found = np.array(self.compiled(*given, **counts), np.float32).reshape(len(texts), -1)
        if not np.isfinite(found).all():
            raise not_finite("the vector is")
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


def room_of(loaded: Loaded) -> int:
    """Ids of the texts that share a call, at most."""
    return max(loaded.run.max_seq_len, ROOM)


def texts_of(loaded: Loaded, **options: Any) -> Any:
    """The graph of a loaded encoder over several texts, compiled and not loaded; None where it takes one at a time, or on an array."""
    encoder, room = loaded.encoder(), room_of(loaded)
    if not takes_several(encoder) or device(choose(options.get("backend"), options.get("dev")).dev).is_npu:
        return None
    shapes = dict(ids=(room,), places=(room,), spans=(room, 2), pooled=(TEXTS, 2))
    key = None if loaded.cache_key is None else digest(loaded.cache_key, "texts", room, TEXTS)
    with tuned(loaded.family, options.get("backend"), options.get("dev")):
        return Texts(encoder).compile(**{name: (shape, np.int32) for name, shape in shapes.items()}, cache_key=key, **options)


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
