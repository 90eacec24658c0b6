"""`Encoder`: a model that makes a vector of a text, taken whole: one graph, its length a value of each call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from iron_core import Scratchpad
from iron_core.errors import ParamError
from iron_lm.parts.embedding import Embedding
from iron_lm.parts.encoder_layer import EncoderLayer
from iron_lm.parts.part import Part, Weights, check_held
from iron_lm.parts.pooling import POOLINGS, Pooling
from iron_lm.run import Run


def given(operand: Any) -> tuple[Any, ...]:
    """It, where there is one."""
    return () if operand is None else (operand,)


class Encoder(Part):
    """Embedding, layers, a last norm, pooling, a head. ids: (max_seq_len,), of which the first `rows` are the text's.

    What comes out is (1, width): the head's, or without one what `pooling` ("mean", "cls", "last") makes of the hidden states;
    with pooling None those of each token, (rows, width). It is not normalised. positions: a part that is given the embedding's
    rows, and `rows`, of models that add to them where tokens stand. ParamError for another pooling, or for a run whose prompts'
    chunk is not the whole context; DeclarationError for what is no part of the kind that is asked for.
    """

    def __init__(
        self,
        run: Run,
        embedding: Embedding,
        layers: Sequence[EncoderLayer],
        norm: Part | None = None,
        *,
        positions: Part | None = None,
        pooling: str | None = "mean",
        head: Part | None = None,
    ) -> None:
        where = type(self).__name__
        check_held(where, Embedding, embedding=embedding)
        check_held(where, EncoderLayer, **{f"layers[{i}]": layer for i, layer in enumerate(layers)})
        given = dict(norm=norm, positions=positions, head=head)
        check_held(where, Part, **{name: part for name, part in given.items() if part is not None})
        if run.prefill_chunk != run.max_seq_len:
            raise ParamError(f"{where}: prefill_chunk={run.prefill_chunk}; legal: max_seq_len={run.max_seq_len}: texts are taken whole.")
        if pooling is not None and pooling not in POOLINGS:
            raise ParamError(f"{where}: pooling={pooling!r}; legal: {', '.join(POOLINGS)}, or None.")
        self.run = run
        self.embedding, self.positions, self.layers, self.norm, self.head = embedding, positions, list(layers), norm, head
        self.pooling = None if pooling is None else Pooling(pooling, embedding.config.hidden_size, run)

    @property
    def vocab_size(self) -> int:
        return self.embedding.config.vocab_size

    def body(self, ids: Any, *, rows: Scratchpad[np.int32]) -> Any:
        return self.vector(self.encoded(self.embedded(ids, rows), rows), rows)

    def embedded(self, ids: Any, rows: Any, places: Any = None) -> Any:
        """What the first layer takes, (rows, hidden_size). places: as `Texts` has them, of several."""
        x = self.embedding(ids, token=None, rows=rows)
        return x if self.positions is None else self.positions(x, *given(places), rows=rows)

    def encoded(self, x: Any, rows: Any, places: Any = None, spans: Any = None) -> Any:
        """What the last norm gives for what the first layer takes; (rows, hidden_size). places, spans: as `Texts` has them."""
        rotaries = {id(layer.rotary): layer.rotary for layer in self.layers if layer.rotary is not None}
        angles = {key: rotary.first(rows, *given(places)) for key, rotary in rotaries.items()}
        for layer in self.layers:
            turns = {} if layer.rotary is None else {"angles": angles[id(layer.rotary)]}
            x = layer(x, **turns, **({} if spans is None else {"spans": spans}), rows=rows)
        return x if self.norm is None else self.norm(x)

    def vector(self, x: Any, rows: Any, pooled: Any = None, texts: Any = None) -> Any:
        """x, hidden states (rows, hidden_size), pooled and through the head. pooled, texts: as `Texts` has them."""
        if self.pooling is not None:
            x = self.pooling(x, rows=rows) if pooled is None else self.pooling.each(x, rows, pooled, texts)
        return x if self.head is None else self.head(x)

    def twin(self, weights: Weights, ids: Any) -> np.ndarray:
        """float32 (1, width) of n tokens; (n, width) where nothing is pooled."""
        x = self.states_twin(weights, ids)
        x = x if self.pooling is None else self.pooling.twin({}, x)
        return x if self.head is None else np.asarray(self.head.twin(self.inside(weights, "head"), x))

    def states_twin(self, weights: Weights, ids: Any) -> np.ndarray:
        """float32 (n, hidden_size): what the last norm gives for each of n tokens."""
        x = self.embedding.twin(self.inside(weights, "embedding"), ids)
        positions = np.arange(len(x))
        x = x if self.positions is None else self.positions.twin(self.inside(weights, "positions"), x)
        for i, layer in enumerate(self.layers):
            x = layer.twin(self.inside(weights, f"layers.{i}"), x, positions)
        return np.asarray(x if self.norm is None else self.norm.twin(self.inside(weights, "norm"), x))
