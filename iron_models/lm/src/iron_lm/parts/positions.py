"""`Positions`: a learned row for every place a token may stand at."""

from __future__ import annotations

from typing import Any

import numpy as np

import iron_core as iron
from iron_lm.parts.embedding import Embedding, EmbeddingConfig
from iron_lm.parts.part import Part, Weights, bounded, is_prompt, of_rows
from iron_lm.parts.standing import Standing
from iron_lm.run import Run
from iron_ops_aie import Copy, ElementwiseAdd


class Positions(Part):
    """x plus the rows of `max_positions` that its own stand at. x: (rows, hidden_size), and the same shape comes out."""

    category = "embedding"

    def __init__(self, max_positions: int, hidden_size: int, run: Run) -> None:
        self.run = run
        self.embedding = Embedding(EmbeddingConfig(max_positions, hidden_size), run)
        # An array gathers by whole ids: those behind a chunk's rows name a row too, which nobody reads.
        self.numbers = iron.weight(np.minimum(np.arange(run.max_seq_len, dtype=np.int32), max_positions - 1))

    def body(
        self,
        x: Any,
        *,
        chunk: iron.Scratchpad[np.int32],
        rows: iron.Scratchpad[np.int32],
        position: iron.Scratchpad[np.int32],
    ) -> Any:
        x = bounded(x, rows)
        if isinstance(position, Standing):
            return ElementwiseAdd(x, self.embedding(position.at, token=None, rows=rows))
        _ = self.embedding.table[position]  # which is checked before each call: there is a row for the last of x
        ids = (Copy(of_rows(self.numbers, x.shape[0], self.run, chunk)),) if is_prompt(x, self.run) else ()
        return ElementwiseAdd(x, self.embedding(*ids, token=position, rows=rows))

    def twin(self, weights: Weights, x: Any, positions: Any) -> np.ndarray:
        return np.asarray(x + self.embedding.twin(self.inside(weights, "embedding"), positions))
