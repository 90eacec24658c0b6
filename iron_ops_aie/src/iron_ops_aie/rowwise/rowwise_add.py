"""`RowwiseAdd`: one vector added to every row."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import In, Rowwise, Sweep, Testing, widen


class RowwiseAdd(Rowwise):
    """y[r] = x[r] + vector: a projection's bias. x, y: (rows, cols); vector: (cols,)."""

    vector = In(Rowwise.cols, dtype=Rowwise.T)

    test = Testing(Sweep(rows=True), Sweep(rows=True, T=np.float32), draw=dict(centered=("x", "vector")))

    def reference(self, x: Any, vector: Any) -> Any:
        return widen(x) + widen(vector)

    def magnitude(self, x: Any, vector: Any) -> Any:
        return np.abs(widen(x)) + np.abs(widen(vector))
