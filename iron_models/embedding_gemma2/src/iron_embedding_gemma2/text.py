"""`TextTower`: an encoder that says of every token of a text, or soft token among them, what it means there."""

from __future__ import annotations

from typing import Any

import numpy as np

import iron_core as iron
from iron_embedding_gemma2.config import TextConfig
from iron_embedding_gemma2.text_layer import TextLayer
from iron_lm.parts.embedding import Embedding
from iron_lm.parts.norm import Norm, NormConfig
from iron_lm.parts.part import Part, Weights, widen
from iron_lm.parts.projection import Projection
from iron_lm.parts.rotary import Rotary
from iron_lm.run import Run


class TextTower(Part):
    """ids: (max_seq_len,) whole numbers, of which a call has `rows` -> (rows, output_size), what the tower says of each token."""

    matrix: Any

    def __init__(self, config: TextConfig, run: Run) -> None:
        c = self.config = config
        self.run = run
        assert c.rotary is not None
        self.embedding = Embedding(c.embedding(c.hidden_size**0.5), run)
        every, local = Rotary(c.rotary, run), Rotary(c.local_rotary, run)
        # Of numbers that are not divided by the root of the hidden size before.
        signal_norm = Norm(NormConfig(c.signal_size, c.norm_epsilon * c.hidden_size))
        self.layers = [
            TextLayer(c.text_attention(i), c.mlp(), c.signal(), run, local if c.slides(i) else every, signal_norm)
            for i in range(c.num_layers)
        ]
        self.norm = Norm(c.norm())
        self.projected = Projection(self, run, matrix=(c.output_size, c.hidden_size))

    def body(self, ids: Any, *, rows: iron.Scratchpad[np.int32]) -> Any:
        return self.states(self.embedding(ids, token=0, rows=rows), rows)

    def states(self, x: Any, rows: Any) -> Any:
        """Of embeddings (rows, hidden_size), which may be soft tokens', what the tower says of each."""
        embedded = x
        for layer in self.layers:
            x = layer(x, layer.rotary.table[: self.run.max_seq_len], embedded, rows=rows)
        return self.projected(self.norm(x))

    def twin(self, weights: Weights, ids: Any) -> np.ndarray:
        return self.states_twin(weights, self.embedding.twin(self.inside(weights, "embedding"), ids))

    def states_twin(self, weights: Weights, x: Any) -> np.ndarray:
        """As `states`, in float32 numpy."""
        embedded, positions = x, np.arange(len(x))
        for i, layer in enumerate(self.layers):
            x = layer.twin(self.inside(weights, f"layers.{i}"), x, embedded, positions)
        x = self.norm.twin(self.inside(weights, "norm"), x)
        return np.asarray(x @ widen(weights["matrix"]).T)
