"""`Places`: what BERT makes of a token's row before its first layer."""

from __future__ import annotations

from typing import Any

import numpy as np

import iron_core as iron
from iron_core.declare.formats import as_dtype
from iron_lm.parts.layer_norm import LayerNorm, LayerNormConfig
from iron_lm.parts.part import Part, Weights, bounded, widen
from iron_lm.parts.projection import biased
from iron_lm.run import Run
from iron_ops_aie import Copy, ElementwiseAdd


class Places(Part):
    """norm(x + the first type's row + the rows of the places). x: (rows, hidden_size), and the same shape comes out.

    A text is one sequence, so all its tokens are of the first of `types`; it stands at the first of `max_positions` places; of several
    behind one another `places` (rows,) says where in its text each row stands.
    """

    table: Any
    types: Any

    def __init__(self, max_positions: int, types: int, norm: LayerNormConfig, run: Run) -> None:
        self.run = run
        self.norm = LayerNorm(norm)
        self.needs(table=(max_positions, norm.size), types=(types, norm.size))

    def body(self, x: Any, places: Any = None, *, rows: iron.Scratchpad[np.int32]) -> Any:
        x, dtype = biased(bounded(x, rows), self.types[0]), as_dtype(self.run.dtype)
        own = self.table[: self.run.max_seq_len][:rows] if places is None else self.table[places]
        at = bounded(Copy(own, Y=dtype), rows)
        return self.norm(ElementwiseAdd(x, at))

    def twin(self, weights: Weights, x: Any) -> np.ndarray:
        x = x + widen(weights["types"][:1]) + widen(weights["table"][: len(x)])
        return self.norm.twin(self.inside(weights, "norm"), x)
