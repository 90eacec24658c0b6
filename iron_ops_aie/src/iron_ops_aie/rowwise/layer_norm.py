"""`LayerNorm`: rows less their mean, divided by how far they spread."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from iron_core import Case, DType, Param, Rowwise, Sweep, Testing, Tolerance, bfloat16, every_row, require, widen
from iron_core.declare.tolerance import ulp
from iron_core.errors import ParamError
from iron_ops_aie.elementwise import kernels as elementwise
from iron_ops_aie.rowwise import kernels, kernels_layer_norm
from iron_ops_aie.rules import floats_only


class LayerNorm(Rowwise):
    """y = (x - mean(x)) / sqrt(var(x) + epsilon), row by row; times `weight`, plus `bias`, where they are given. Rounded once.

    x, y: (rows, cols). weight, bias: (cols,), both of one dtype of their own. var is the mean of the squares of x - mean(x).
    epsilon is in the units of x squared; with epsilon 0 a row of equal numbers has no norm (NaN). `valid` bounds the rows.

    The array (bfloat16 throughout): per lane a core that norms, one that multiplies by `weight`, one that adds `bias`; what goes from
    one to the next is rounded. mlir-aie's kernel norms where epsilon is 1e-5, elsewhere one of this pack, without vectors. Squares are
    summed in float32: a row in which they pass 2^127 comes out as zeros (before `bias`).

    Errors: ParamError for a negative epsilon or integers. Unresolvable where no array takes it.
    """

    row_unit = 32

    epsilon: float = Param(default=1e-5, array=True)
    weighted: bool = Param(default=False, array=True)
    biased: bool = Param(default=False, array=True)
    W: Any = DType(default=lambda op: op.T)
    weight = every_row(W, when=weighted)
    bias = every_row(W, when=biased)

    test = Testing(
        Sweep(rows=True),
        Sweep(rows=True, T=np.float32),
        Case(rows=3, cols=577, weighted=True, biased=True, T=np.float32),
        Case(rows=5, cols=96, weighted=True, biased=True),
        Case(rows=5, cols=7, weighted=True, T=bfloat16, W=np.float32),
        Case(rows=16, cols=768, weighted=True, biased=True, lower=True),
        Case(rows=6, cols=64, biased=True, lower=True),
        Case(rows=4, cols=384, weighted=True, biased=True, epsilon=1e-12, lower=True),
        Case(rows=12, cols=160, weighted=True, num_channels=2, lower=True),
        Case(rows=2, cols=33, biased=True, T=np.float16, W=np.float32),
        draw=dict(centered=("x", "weight", "bias")),
    )

    def validate(self) -> None:
        floats_only(self, "T", "W")
        if not (self.epsilon >= 0 and math.isfinite(self.epsilon)):
            raise ParamError(f"LayerNorm: epsilon={self.epsilon}; legal: a finite number that is not negative.")

    def reference(self, x: Any, weight: Any = None, bias: Any = None) -> Any:
        wide = widen(x)
        y = self._normed(wide - wide.mean(-1, keepdims=True), wide)
        if weight is not None:
            y = y * widen(weight)
        return y if bias is None else y + widen(bias)

    def magnitude(self, x: Any, weight: Any = None, bias: Any = None) -> Any:
        """What is subtracted and added, each without its sign."""
        wide = widen(x)
        parts = self._normed(np.abs(wide) + np.abs(wide.mean(-1, keepdims=True)), wide)
        if weight is not None:
            parts = parts * np.abs(widen(weight))
        return parts if bias is None else parts + np.abs(widen(bias))

    def _normed(self, y: np.ndarray, wide: np.ndarray) -> Any:
        """y divided by how far each row of `wide` spreads."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return y / np.sqrt(wide.var(-1, keepdims=True) + self.epsilon)

    def kernel(self) -> Any:
        return kernels_layer_norm.layer_norm(self.cols, self.epsilon)

    def stages(self) -> Any:
        affine = (("weight", elementwise.mul), ("bias", elementwise.add))
        return ((self.kernel(), ()), *((kernel(self.cols), (name,)) for name, kernel in affine if name in self.vectors))

    def compatible(self, dev: Any) -> None:
        legal = self.epsilon >= kernels.SMALLEST
        require(legal, f"LayerNorm: epsilon={self.epsilon}; its array adds it in float32. Legal: at least {kernels.SMALLEST}.")
        super().compatible(dev)

    def array_error(self, x: Any, weight: Any = None, bias: Any = None) -> Any:
        """The first core's, and a rounding in each core behind it."""
        wide = widen(x)
        y = self._normed(wide - wide.mean(-1, keepdims=True), wide)
        radius = ulp(y, bfloat16) + kernels_layer_norm.NEAR_ZERO
        if weight is not None:
            y = y * widen(weight)
            radius = radius * np.abs(widen(weight)) + ulp(y, bfloat16)
        return radius if bias is None else radius + ulp(y + widen(bias), bfloat16)

    def tolerance(self) -> Tolerance:
        return Tolerance(terms=self.cols)

    def ops(self) -> int:
        return (5 + self.weighted + self.biased) * self.rows * self.cols
