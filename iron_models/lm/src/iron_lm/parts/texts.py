"""`Texts`: an encoder over several texts at once, whose rows lie behind one another."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np

import iron_core as iron
from iron_lm.parts.encoder import Encoder
from iron_lm.parts.part import Part, Weights, bounded


class Texts(Part):
    """Vectors of texts, a row each: what `encoder` makes of each alone, without rows that fill one up to another's length.

    ids, places (room,): the texts' ids, and where in its text each of them stands. spans (room, 2): the first row of its text and the
    one behind the last. pooled (most, 2): of each text the rows that its vector is pooled of. The first `rows` and `texts` count.
    """

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder

    def body(
        self, ids: Any, places: Any, spans: Any, pooled: Any, *, rows: iron.Scratchpad[np.int32], texts: iron.Scratchpad[np.int32]
    ) -> Any:
        encoder = self.encoder
        ids, places = bounded(ids, rows), bounded(places, rows)
        x = encoder.encoded(encoder.embedded(ids, rows, places), rows, places, spans)
        return encoder.vector(x, rows, pooled, texts)

    def twin(self, weights: Weights, ids: Any) -> np.ndarray:
        """float32 (1, width), of one text."""
        return self.encoder.twin(self.inside(weights, "encoder"), ids)


def takes_several(encoder: Encoder) -> bool:
    """Does it pool, and do its parts take where rows stand, and what they see?"""
    layers = [part for layer in encoder.layers for part in (layer, layer.mixer)]
    places = () if encoder.positions is None else (encoder.positions,)
    wanted = [*((part, "spans") for part in layers), *((part, "places") for part in places)]
    own = type(encoder).body is Encoder.body and encoder.pooling is not None
    return own and all(name in inspect.signature(part.body).parameters for part, name in wanted)


def laid_out(texts: Sequence[Sequence[int]], room: int, most: int, pooling: str) -> tuple[np.ndarray, ...]:
    """What `Texts` takes, of at most `most` texts that are `room` ids in all; then how many rows and texts count."""
    lengths = np.array([len(ids) for ids in texts])
    ends = lengths.cumsum()
    begins, rows = ends - lengths, int(ends[-1])
    ids, places = np.zeros(room, np.int32), np.zeros(room, np.int32)
    spans, pooled = np.zeros((room, 2), np.int32), np.zeros((most, 2), np.int32)
    ids[:rows] = np.concatenate([np.asarray(each, np.int32) for each in texts])
    places[:rows] = np.arange(rows) - np.repeat(begins, lengths)
    spans[:rows] = np.repeat(np.stack([begins, ends], 1), lengths, 0)
    first, last = {"mean": (begins, ends), "cls": (begins, begins + 1), "last": (ends - 1, ends)}[pooling]
    pooled[: len(texts)] = np.stack([first, last], 1)
    return ids, places, spans, pooled
