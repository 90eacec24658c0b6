"""`RMSNorm`: rows divided by their root mean square."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from iron_core import Case, DType, Param, Rowwise, Sweep, Testing, Tolerance, bfloat16, every_row, round_to, widen
from iron_core.errors import ParamError
from iron_ops_aie.elementwise import kernels as elementwise
from iron_ops_aie.rowwise import kernels
from iron_ops_aie.rules import floats_only


class RMSNorm(Rowwise):
    """y = x / sqrt(mean(x^2) + epsilon), row by row; with `weight`, the row rounded to x's dtype, times the weight. (The CPU rounds the
    product alone, which is nearer to the exact one.)

    x, y: (rows, cols). weight: (cols,), of its own dtype. epsilon is in the units of x squared; with epsilon 0 a row of
    zeros has no norm (NaN). `valid` bounds the rows.

    The array (bfloat16 throughout): a core per lane; with `weight` two, one of which norms what the next multiplies.
    Its kernel sums squares in float32: a row in which they pass 2^128 comes out as zeros.

    Errors: ParamError for a negative epsilon or integers.
    """

    epsilon: float = Param(default=1e-5, array=True)
    weighted: bool = Param(default=False, array=True)
    W: Any = DType(default=lambda op: op.T)
    weight = every_row(W, when=weighted)

    test = Testing(
        Sweep(rows=True),
        Sweep(rows=True, T=np.float32),
        Case(rows=3, cols=576, weighted=True, T=np.float32),
        Case(rows=5, cols=96, weighted=True),
        Case(rows=5, cols=96, weighted=True, T=bfloat16, W=np.float32),
        Case(rows=1, cols=2048, weighted=True, lower=True),
        Case(rows=24, cols=576, weighted=True, num_channels=2, epsilon=1e-6, lower=True),
        draw=dict(centered=("x", "weight")),
    )

    def validate(self) -> None:
        floats_only(self, "T", "W")
        if not (self.epsilon >= 0 and math.isfinite(self.epsilon)):
            raise ParamError(f"RMSNorm: epsilon={self.epsilon}; legal: a finite number that is not negative.")

    def reference(self, x: Any, weight: Any = None) -> Any:
        wide = widen(x)
        with np.errstate(invalid="ignore"):
            y = wide / np.sqrt((wide * wide).mean(-1, keepdims=True) + self.epsilon)
        if weight is None:
            return y
        return widen(round_to(y, np.dtype(self.T))) * widen(weight)

    def kernel(self) -> Any:
        return kernels.rms_norm(self.cols, self.epsilon)

    def stages(self) -> Any:
        norm = (self.kernel(), ())
        return (norm, (elementwise.mul(self.cols), ("weight",))) if self.weighted else (norm,)

    def tolerance(self) -> Tolerance:
        # Where a weight follows, the normalised row may round to the neighbour (at most 2 ulp of the product), which
        # comes on top of the product's own rounding.
        return Tolerance(terms=self.cols, ulps=2.5 if self.weighted else 2.0)

    def ops(self) -> int:
        return (4 if self.weighted else 3) * self.rows * self.cols
