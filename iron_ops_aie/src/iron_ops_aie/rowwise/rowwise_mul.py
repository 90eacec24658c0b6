"""`RowwiseMul`: every row times one vector."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import In, Rowwise, Sweep, Testing, widen


class RowwiseMul(Rowwise):
    """y[r] = x[r] * vector, number by number: a gain of each column. x, y: (rows, cols); vector: (cols,)."""

    vector = In(Rowwise.cols, dtype=Rowwise.T)

    test = Testing(Sweep(rows=True), Sweep(rows=True, T=np.float32), draw=dict(centered=("x", "vector")))

    def reference(self, x: Any, vector: Any) -> Any:
        return widen(x) * widen(vector)
