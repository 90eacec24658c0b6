"""`Softmax`: each row's exponentials, divided by their sum."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import Case, Extent, Param, Rowwise, Sweep, Testing, Tolerance, Value, widen
from iron_core.errors import ParamError
from iron_ops_aie.rowwise.softmax_array import SoftmaxArray
from iron_ops_aie.rules import floats_only


class Softmax(SoftmaxArray, Rowwise):
    """y = exp(x - max) / sum, over the first `vector_size` numbers of a row; the rest of the row is zero.

    x, y: (rows, cols). Per call, `valid` bounds the rows and `valid_cols` the numbers of a row that count:
    `Softmax(x, valid_cols=n)`. y keeps its cols, so what reads it needs no bound.

    The array (bfloat16): a core per lane computes whole vectors of 32, in which what does not count is hidden, of rows that are
    zero beyond them.

    Errors: ParamError for a vector_size that is not 1 to cols, or integers. Unresolvable where no array takes it.
    """

    vector_size: int = Param(default=lambda op: op.cols)
    valid_cols = Extent(vector_size)
    counted = Value(derive=lambda op: op.valid_cols)

    test = Testing(
        Sweep(rows=True),
        Sweep(rows=True, T=np.float32),
        Case(rows=16, cols=1500, T=np.float32),
        Case(rows=32, cols=96, bounds=dict(valid=19, valid_cols=50), lower=True),
        Case(rows=3, cols=96, vector_size=50, T=np.float32),
        Case(rows=3, cols=96, vector_size=1),
        Case(rows=16, cols=96, vector_size=50, lower=True),
        Case(rows=48, cols=1536, vector_size=1500, lower=True),
        Case(rows=32, cols=64, vector_size=64, num_channels=2, lower=True),
        draw=dict(centered=("x",)),
    )

    def validate(self) -> None:
        floats_only(self, "T")
        if not 1 <= self.vector_size <= self.cols:
            raise ParamError(f"Softmax: vector_size={self.vector_size}; legal: 1 to cols={self.cols}.")

    def reference(self, x: Any) -> Any:
        wide = widen(x)
        y = np.zeros(wide.shape)
        if self.vector_size:
            counted = wide[:, : self.vector_size]
            weights = np.exp(counted - counted.max(-1, keepdims=True, initial=-np.inf))
            y[:, : self.vector_size] = weights / weights.sum(-1, keepdims=True)
        return y

    def magnitude(self, x: Any) -> Any:
        """The answer, times how much the rounding of x - max moves an exponential."""
        wide = widen(x)
        top = wide[:, : self.vector_size].max(-1, keepdims=True, initial=-np.inf)
        return self.reference(x) * (1 + np.abs(top - wide)) if self.vector_size else np.zeros(wide.shape)

    def tolerance(self) -> Tolerance:
        # An exponential below the smallest normal number may come out as zero.
        return Tolerance(terms=self.cols, absolute=2.0**-125)

    def ops(self) -> int:
        return 4 * self.rows * self.vector_size
