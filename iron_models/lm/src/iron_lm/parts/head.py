"""`Head`: logits of a row."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from iron_lm.fields import counted, optional, positive
from iron_lm.parts.embedding import Embedding
from iron_lm.parts.part import Part, Weights, widen
from iron_lm.parts.projection import project
from iron_lm.run import Run
from iron_ops_aie import SoftCap

_ROWS = 8192  # rows of the matrix that the twin widens at once


@attrs.frozen
class HeadConfig:
    """cap: bends the logits to within it."""

    vocab_size: int = attrs.field(validator=counted)
    hidden_size: int = attrs.field(validator=counted)
    cap: float | None = attrs.field(default=None, validator=optional(positive))


class Head(Part):
    """x (1, hidden_size) times the matrix, (vocab_size, hidden_size) -> float32 (1, vocab_size). tied: the embedding whose table
    is the matrix."""

    category = "head"

    matrix: Any

    def __init__(self, config: HeadConfig, run: Run, tied: Embedding | None = None) -> None:
        self.config, self.run, self.tied = config, run, tied
        if tied is None:
            self.needs(matrix=(config.vocab_size, config.hidden_size))

    def body(self, x: Any) -> Any:
        matrix = self.matrix if self.tied is None else self.tied.table
        logits = project(x, matrix, self.run.activations, out=np.float32)
        return logits if self.config.cap is None else SoftCap(logits, cap=self.config.cap)

    def twin(self, weights: Weights, x: Any) -> np.ndarray:
        matrix = weights["matrix" if self.tied is None else "tied.table"]
        logits = np.concatenate([x @ widen(matrix[i : i + _ROWS]).T for i in range(0, matrix.shape[0], _ROWS)], -1)
        cap = self.config.cap
        return logits if cap is None else np.float32(cap) * np.tanh(logits / np.float32(cap))
