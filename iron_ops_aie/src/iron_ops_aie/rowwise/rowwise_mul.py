"""`RowwiseMul`: every row times one vector."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import Case, Rowwise, Sweep, Testing, every_row, widen
from iron_ops_aie.elementwise import kernels


class RowwiseMul(Rowwise):
    """y[r] = x[r] * vector, number by number: a gain of each column. x, y: (rows, cols); vector: (cols,)."""

    vector = every_row()

    test = Testing(
        Sweep(rows=True),
        Sweep(rows=True, T=np.float32),
        Case(rows=1, cols=960, lower=True),
        Case(rows=30, cols=48, num_channels=2, lower=True),
        draw=dict(centered=("x", "vector")),
    )

    def reference(self, x: Any, vector: Any) -> Any:
        return widen(x) * widen(vector)

    def kernel(self) -> Any:
        return kernels.mul(self.cols)
