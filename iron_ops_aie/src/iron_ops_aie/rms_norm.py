"""`RMSNorm`: rows divided by their root mean square."""

from __future__ import annotations

from typing import Any

import numpy as np
from iron_core import DType, In, Param, Rowwise, Tolerance, bfloat16
from iron_core.declare.rounding import round_to, widen
from iron_core.declare.testing import Case, Sweep, Testing
from iron_core.errors import ParamError


class RMSNorm(Rowwise):
    """y = x / sqrt(mean(x^2) + epsilon), row by row; with `weight`, the row rounded to x's dtype, times the weight.

    x, y: (rows, cols). weight: (cols,), of its own dtype. `valid` bounds the rows.
    """

    epsilon: float = Param(default=1e-5, array=True)
    weighted: bool = Param(default=False, array=True)
    W: Any = DType(default=lambda op: op.T)
    weight = In(Rowwise.cols, dtype=W, when=weighted)

    test = Testing(
        Sweep(rows=True),
        Sweep(rows=True, T=np.float32),
        Case(rows=3, cols=576, weighted=True, T=np.float32),
        Case(rows=5, cols=96, weighted=True),
        Case(rows=5, cols=96, weighted=True, T=bfloat16, W=np.float32),
        draw=dict(centered=("x", "weight")),
    )

    def validate(self) -> None:
        if not self.epsilon > 0:
            raise ParamError(f"RMSNorm: epsilon={self.epsilon}; legal: a positive number.")

    def reference(self, x: Any, weight: Any = None) -> Any:
        wide = widen(x)
        y = wide / np.sqrt((wide * wide).mean(-1, keepdims=True) + self.epsilon)
        if weight is None:
            return y
        return widen(round_to(y, np.dtype(self.T))) * widen(weight)

    def tolerance(self) -> Tolerance:
        # Twice the roundings where a weight follows: of the normalised row, then of the product.
        return Tolerance(terms=self.cols, ulps=4.0 if self.weighted else 2.0)
