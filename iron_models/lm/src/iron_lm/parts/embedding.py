"""`Embedding`: tokens as rows of a table."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

import iron_core as iron
from iron_core.declare.formats import as_dtype
from iron_lm.fields import counted, positive
from iron_lm.parts.part import Part, Weights, bounded, widen
from iron_lm.run import Run
from iron_ops_aie import Copy, Dequant, Scale


@attrs.frozen
class EmbeddingConfig:
    """scale: multiplies every row, in the activations' own dtype, as models that have it were trained."""

    vocab_size: int = attrs.field(validator=counted)
    hidden_size: int = attrs.field(validator=counted)
    scale: float = attrs.field(default=1.0, validator=positive)


class Embedding(Part):
    """Rows of `table`, (vocab_size, hidden_size): those of `ids`, the first `rows` of them, or of `token` where no ids are given."""

    category = "embedding"

    table: Any

    def __init__(self, config: EmbeddingConfig, run: Run) -> None:
        self.config, self.run = config, run
        self.needs(table=(config.vocab_size, config.hidden_size))

    def body(self, ids: Any = None, *, token: iron.Scratchpad[np.int32], rows: iron.Scratchpad[np.int32]) -> Any:
        dtype, width = as_dtype(self.run.dtype), self.config.hidden_size
        row, n = (self.table[token], 1) if ids is None else (self.table[ids], ids.shape[0])
        if self.table.format.packed:
            x = Dequant(Copy(row).reshape(n, width), T=dtype)
        else:
            x = Copy(row, Y=dtype).reshape(n, width)
        x = bounded(x, rows)  # arrays gather by whole ids
        if self.config.scale == 1:
            return x
        return Scale(x, factor=float(np.asarray(self.config.scale).astype(dtype)))

    def twin(self, weights: Weights, ids: Any) -> np.ndarray:
        return widen(weights["table"][np.asarray(ids, np.int64)]) * np.float32(self.config.scale)
