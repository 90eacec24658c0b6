"""`Softmax`: each row's exponentials, divided by their sum."""

from __future__ import annotations

from typing import Any

import numpy as np
from iron_core import Extent, Rowwise, Tolerance
from iron_core.declare.rounding import widen
from iron_core.declare.testing import Case, Sweep, Testing


class Softmax(Rowwise):
    """y = exp(x - max) / sum, over the first `valid_cols` numbers of a row; the rest of y is zero.

    x, y: (rows, cols). Per call, `valid` bounds the rows and `valid_cols` the numbers of a row that count.
    """

    valid_cols = Extent(Rowwise.cols)

    test = Testing(
        Sweep(rows=True), Sweep(rows=True, T=np.float32), Case(rows=16, cols=1500, T=np.float32), draw=dict(centered=("x",))
    )

    def reference(self, x: Any) -> Any:
        wide = widen(x)
        weights = np.exp(wide - wide.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True)

    def magnitude(self, x: Any) -> Any:
        """The answer, times how much the rounding of x - max moves an exponential."""
        wide = widen(x)
        return self.reference(x) * (1 + wide.max(-1, keepdims=True) - wide)

    def tolerance(self) -> Tolerance:
        return Tolerance(terms=self.cols)
