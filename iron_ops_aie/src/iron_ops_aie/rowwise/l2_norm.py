"""`L2Norm`: rows divided by their length."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from iron_core import Case, Param, Rowwise, Sweep, Testing, Tolerance, widen
from iron_core.errors import ParamError
from iron_ops_aie.elementwise import kernels as elementwise
from iron_ops_aie.rowwise import kernels
from iron_ops_aie.rules import floats_only


class L2Norm(Rowwise):
    """y = x / sqrt(sum(x^2) + epsilon), row by row. x, y: (rows, cols). epsilon is in the units of x squared; with epsilon 0 a row of
    zeros has no norm (NaN). `valid` bounds the rows.

    The array (bfloat16): two cores per lane, one of which divides by the root mean square, the next by the root of cols; its kernel
    sums squares in float32, and a row in which they pass 2^128 comes out as zeros.

    Errors: ParamError for a negative epsilon or integers.
    """

    epsilon: float = Param(default=1e-6, array=True)

    test = Testing(
        Sweep(rows=True),
        Sweep(rows=True, T=np.float32),
        Case(rows=32, cols=128, lower=True),
        draw=dict(centered=("x",)),
    )

    def validate(self) -> None:
        floats_only(self, "T")
        if not (self.epsilon >= 0 and math.isfinite(self.epsilon)):
            raise ParamError(f"L2Norm: epsilon={self.epsilon}; legal: a finite number that is not negative.")

    def reference(self, x: Any) -> Any:
        wide = widen(x)
        with np.errstate(invalid="ignore"):
            return wide / np.sqrt((wide * wide).sum(-1, keepdims=True) + self.epsilon)

    def kernel(self) -> Any:
        return kernels.rms_norm(self.cols, self.epsilon / self.cols)

    def stages(self) -> Any:
        return (self.kernel(), ()), (elementwise.scale(self.cols, self.cols**-0.5), ())

    def tolerance(self) -> Tolerance:
        return Tolerance(terms=self.cols)

    def ops(self) -> int:
        return 3 * self.rows * self.cols
