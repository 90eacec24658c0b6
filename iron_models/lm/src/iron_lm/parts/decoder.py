"""`Decoder`: a model that continues text, one graph of three versions: a decode step, a prompt's chunk, and drafted tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import iron_core as iron
from iron_core import Carried, Scratchpad
from iron_lm.parts.embedding import Embedding
from iron_lm.parts.head import Head
from iron_lm.parts.layer import Layer
from iron_lm.parts.part import Part, Weights, check_held
from iron_lm.parts.positions import Positions
from iron_lm.parts.recurrent_state import RecurrentState
from iron_lm.parts.sliding_cache import SlidingKVCache
from iron_lm.run import Run
from iron_ops_aie import Copy, Sample
from iron_ops_aie.tokens.draw import ROW_WORDS

#: Candidates the sampling operator keeps.
K_MAX = 64


class Decoder(Part):
    """Embedding, layers, a last norm, a head.

    Without `ids` the body is a decode step: it embeds `token` at `position`. With `ids` (prefill_chunk of them) it is a
    prompt chunk: `rows` rows behind `chunk` steps of `run.prefill_step`, the last at `position`. Either way it returns the last row's
    logits, float32 (vocab,), and carries the token drawn from them and the next position. With `run.drafted` ids it is `rows` drafted
    tokens behind `chunk` others, however many, the last at `position`: it returns the logits of each, (drafted, vocab), and carries the
    same. `max_seq_len` sizes the caches, the rotary tables and the draws; no activation follows it. positions: what is added to the
    embedding, of models that learned where tokens stand. DeclarationError for what is no part of the kind that is asked for.
    """

    category = "decoder"

    def __init__(
        self, run: Run, embedding: Embedding, layers: Sequence[Layer], norm: Part, head: Head, positions: Positions | None = None
    ) -> None:
        where = type(self).__name__
        check_held(where, Embedding, embedding=embedding)
        check_held(where, Layer, **{f"layers[{i}]": layer for i, layer in enumerate(layers)})
        check_held(where, Part, norm=norm, head=head)
        self.run = run
        self.embedding, self.positions, self.layers, self.norm, self.head = embedding, positions, list(layers), norm, head
        self.draws = iron.state((run.max_seq_len, ROW_WORDS), np.int32)
        self.drawn = iron.state(run.max_seq_len, np.int32)

    @property
    def vocab_size(self) -> int:
        return self.embedding.config.vocab_size

    @property
    def caches(self) -> list[Any]:
        """What the layers keep of the tokens so far, each once."""
        found = {id(cache): cache for layer in self.layers if (cache := getattr(layer.mixer, "cache", None)) is not None}
        return list(found.values())

    @property
    def recurrent(self) -> list[Any]:
        """The states among those that cannot go back to an earlier token."""
        return [state for cache in self.caches if isinstance(cache, RecurrentState) for state in cache.states.values()]

    def body(
        self,
        ids: Any = None,
        *,
        token: Carried[np.int32],
        position: Carried[np.int32],
        chunk: Scratchpad[np.int32],
        rows: Scratchpad[np.int32],
    ) -> Any:
        logits, drawn = self.computed(ids, token, chunk, rows, position, position, chunk)
        return logits, iron.carry(token=drawn, position=position + 1)

    def computed(self, ids: Any, token: Any, chunk: Any, rows: Any, position: Any, place: Any, first: Any) -> tuple[Any, Any]:
        """The last row's logits, of drafted tokens each row's, and the token drawn from the last ones. place, first: the row of
        `position`, and of the first of drafted tokens, in caches that slide."""
        x = self.states(ids, token, chunk, rows, position, place, first)
        drafted = ids is not None and ids.shape[0] != self.run.prefill_chunk
        if ids is not None and not drafted:
            x = Copy(x[rows - 1]).reshape(1, x.shape[1])  # the last row's logits alone
        logits = self.head(self.norm(x))
        last = Copy(logits[rows - 1]) if drafted else (logits := logits.reshape(self.vocab_size))
        with iron.category("sampling"):
            _, drawn = Sample(
                last, self.draws, self.drawn, row=position * ROW_WORDS, at=position, k_max=min(K_MAX, self.vocab_size)
            )
        return logits, drawn

    def states(self, ids: Any, token: Any, chunk: Any, rows: Any, position: Any, place: Any, first: Any = None) -> Any:
        """What the last layer gives, (rows, hidden_size)."""
        x = self.embedding(*(() if ids is None else (ids,)), token=token, rows=rows)
        x = x if self.positions is None else self.positions(x, chunk=chunk, rows=rows, position=position)
        rotaries = {id(layer.rotary): layer.rotary for layer in self.layers if layer.rotary is not None}
        angles = {key: rotary(x, chunk=chunk, rows=rows, position=position) for key, rotary in rotaries.items()}
        for layer in self.layers:
            given = () if layer.rotary is None else (angles[id(layer.rotary)],)
            slides = isinstance(getattr(layer.mixer, "cache", None), SlidingKVCache)
            where = dict(chunk=first, position=place) if slides else dict(chunk=chunk, position=position)
            x = layer(x, *given, rows=rows, **where)
        return x

    # -- what a session asks ---------------------------------------------------------------------

    @property
    def grid(self) -> int:
        """A prompt's chunk begins at a multiple of so many tokens, or so early that it ends with the caches."""
        return self.run.prefill_chunk if self.recurrent else self.run.prefill_step

    def base(self, position: int) -> int:
        """The first token in caches that slide, while `position` is computed; 0 where none does."""
        return 0

    def where(self, position: int, first: int | None = None) -> dict[str, int]:
        """The per-call values that say where `position` is, and the first of drafted tokens."""
        return {"position": position}

    def latest(self, position: int) -> int:
        """Where a call of drafted tokens, of which `position` is one, begins at the latest: its rows are all within the caches."""
        return self.run.max_seq_len - self.run.drafted

    def slide(self, compiled: Any, rows: int) -> None:
        """Move caches that slide by `rows` tokens, in the memory of a compiled graph of this one."""

    def twin(self, weights: Weights, ids: Any, dtype: Any = np.float32) -> np.ndarray:
        """(n, vocab), computed in `dtype`: the logits after each of n tokens, attending to all before it."""
        return self.head.twin(self.inside(weights, "head"), self.states_twin(weights, ids, dtype))

    def states_twin(self, weights: Weights, ids: Any, dtype: Any = np.float32) -> np.ndarray:
        """(n, hidden_size), computed in `dtype`: what the last norm gives for each of n tokens."""
        x = self.embedding.twin(self.inside(weights, "embedding"), ids).astype(dtype)
        positions = np.arange(len(x))
        x = x if self.positions is None else self.positions.twin(self.inside(weights, "positions"), x, positions)
        for i, layer in enumerate(self.layers):
            x = layer.twin(self.inside(weights, f"layers.{i}"), x, positions)
        return np.asarray(self.norm.twin(self.inside(weights, "norm"), x))
