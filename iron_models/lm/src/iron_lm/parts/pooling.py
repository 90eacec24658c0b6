"""`Pooling`: one row of the rows of a text."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import iron_core as iron
from iron_core.declare.formats import as_dtype
from iron_lm.parts.part import Part, Weights, bounded
from iron_lm.run import Run
from iron_ops_aie import MHA, Copy

#: By name, in numpy: rows (n, width) -> one (width,).
POOLINGS = {
    "cls": lambda x: x[0],
    "last": lambda x: x[-1],
    "mean": lambda x: x.mean(0, dtype=np.float64),
}
#: Numbers of a head that means are made by, where a width is whole ones.
_HEAD = 64


class Pooling(Part):
    """x (rows, width) -> (1, width): the first row ("cls"), the last of a call's ("last"), or the mean of all ("mean").

    The mean is attention by a query of zeros: each row weighs the same.
    """

    category = "pooling"

    def __init__(self, kind: str, width: int, run: Run) -> None:
        self.kind, self.width, self.run = kind, width, run
        head = math.gcd(width, _HEAD)
        self.zeros = iron.weight(np.zeros((1, width // head, head), as_dtype(run.dtype)))

    def body(self, x: Any, *, rows: iron.Scratchpad[np.int32]) -> Any:
        if self.kind != "mean":
            return Copy(x[0] if self.kind == "cls" else x[rows - 1]).reshape(1, self.width)
        x = bounded(x, rows).reshape(x.shape[0], *self.zeros.shape[1:])
        pooled = MHA(self.zeros, x, x, causal=False, heads_interleaved=True, kv_interleaved=True)
        return pooled.reshape(1, self.width)

    def each(self, x: Any, rows: Any, pooled: Any, texts: Any) -> Any:
        """Of several texts, (texts, width): x's rows from the first number of each of `pooled` up to the second weigh the same."""
        n, head = pooled.shape[0], self.zeros.shape[2]
        zeros = iron.weight(np.zeros((n, self.width // head, head), as_dtype(self.run.dtype)))
        x = bounded(x, rows).reshape(x.shape[0], *self.zeros.shape[1:])
        found = MHA(zeros[:texts], x, x, spans=bounded(pooled, texts), causal=False, heads_interleaved=True, kv_interleaved=True)
        return found.reshape(n, self.width)

    def twin(self, weights: Weights, x: Any) -> np.ndarray:
        return POOLINGS[self.kind](x).astype(np.float32)[None]
