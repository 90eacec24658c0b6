"""`ConcatChannels`: tensors of as many rows side by side."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

import iron_core as iron
from iron_core.declare.formats import as_dtype
from iron_core.errors import ShapeError
from iron_lm.fields import counted
from iron_lm.parts.part import Part, Weights
from iron_lm.run import Run
from iron_ops_aie import Copy


@attrs.frozen(kw_only=True)
class ConcatChannelsConfig:
    """rows: of each tensor. first, second: their channels."""

    rows: int = attrs.field(validator=counted)
    first: int = attrs.field(validator=counted)
    second: int = attrs.field(validator=counted)


class ConcatChannels(Part):
    """a: (..., first), b: (..., second) -> (rows, first + second): of each place the channels of a, then those of b.

    What it gives stands in a state of this part, so it is good until the part is called again. Rows that a call bounds stay bounded.
    """

    def __init__(self, config: ConcatChannelsConfig, run: Run) -> None:
        c = self.config = config
        self.run = run
        self.joined = iron.state((c.rows, c.first + c.second), as_dtype(run.dtype))

    def body(self, a: Any, b: Any) -> Any:
        c = self.config
        a, b = (self._rows(x, channels) for x, channels in ((a, c.first), (b, c.second)))
        if len({tuple((axis, bound.key) for axis, bound in sorted(x.bounds.items())) for x in (a, b)}) > 1:
            raise ShapeError(f"ConcatChannels: {a} and {b} are bounded differently; legal: both by the same number of rows.")
        rows = next(iter(a.bounds.values()), c.rows)
        Copy(a, self.joined[:rows, : c.first])
        Copy(b, self.joined[:rows, c.first :])
        return Copy(self.joined[:rows])

    def _rows(self, x: Any, channels: int) -> Any:
        """x as rows of channels. ShapeError for another number of either."""
        if x.shape[-1] != channels or x.size != self.config.rows * channels:
            legal = f"{self.config.rows} rows of {channels}"
            raise ShapeError(f"ConcatChannels: {x}; legal: {legal}.")
        return x if x.ndim == 2 else x.reshape(self.config.rows, channels)

    def twin(self, weights: Weights, a: Any, b: Any) -> np.ndarray:
        return np.concatenate([np.asarray(x, np.float32).reshape(-1, x.shape[-1]) for x in (a, b)], -1)
