"""`DepthwiseConv1d`: every channel convolved over time by its own few weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import Auto, Case, DType, Extent, In, Operator, Out, Param, Testing, Tolerance, Value, Width, bfloat16, widen
from iron_ops_aie.products.depthwise_conv1d_array import DepthwiseConv1dArray
from iron_ops_aie.products.kernels_conv import TAPS
from iron_ops_aie.rules import floats_only


class DepthwiseConv1d(DepthwiseConv1dArray, Operator):
    """y[t, c] = weight[0, c] x[t - taps + 1, c] + ... + weight[taps - 1, c] x[t, c]; rows before the first are zeros.

    x, y: (rows, channels), a row for every point in time. weight: (taps, channels), of a dtype of its own (`W`). Causal: no row
    depends on a later one. `valid` bounds the rows.

    The array (bfloat16, 5 taps): a core per column convolves a run of rows. Under a bound it makes all rows, those past it of
    whatever x holds there.

    Errors: ParamError for integers. Unresolvable where no array takes it.
    """

    rows: int = Param()
    channels: int = Param()
    taps: int = Param(default=TAPS)
    T: Any = DType(default=bfloat16)
    W: Any = DType(default=lambda op: op.T)
    num_aie_columns: int = Auto(domain=Width())
    x = In(rows, channels, dtype=T, tile=channels, per=num_aie_columns, depth=TAPS + 1)
    weight = In(taps, channels, dtype=W, tile=channels, broadcast=True, depth=TAPS)
    y = Out(rows, channels, dtype=T, tile=channels, per=num_aie_columns)
    valid = Extent(rows)
    #: Rows that a core makes.
    steps = Value(derive=lambda op: op.rows // op.num_aie_columns)

    test = Testing(
        Case(rows=64, channels=64, num_aie_columns=1, lower=True),
        Case(rows=20, channels=96, lower=True),
        Case(rows=4, channels=32, lower=True),
        Case(rows=20, channels=64, bounds=dict(valid=7), lower=True),
        Case(rows=33, channels=100, T=np.float32),
        Case(rows=9, channels=7, taps=3, T=bfloat16, W=np.float32),
        Case(rows=3, channels=64, taps=4, T=np.float16),
        Case(rows=768, channels=1024, lower=True, bench=True),
        Case(rows=768, channels=1024, T=np.float32, bench=True),
        draw=dict(centered=("x", "weight")),
    )

    def validate(self) -> None:
        floats_only(self, "T", "W")

    def _terms(self, x: Any, weight: Any) -> Any:
        """Per tap its products, the oldest first; float64."""
        padded = np.concatenate([np.zeros((self.taps - 1, self.channels)), widen(x)])
        return (w * padded[j : j + len(x)] for j, w in enumerate(widen(weight)))

    def reference(self, x: Any, weight: Any) -> Any:
        return sum(self._terms(x, weight))

    def magnitude(self, x: Any, weight: Any) -> Any:
        return sum(np.abs(term) for term in self._terms(x, weight))

    def tolerance(self) -> Tolerance:
        return Tolerance(terms=self.taps)

    def ops(self) -> int:
        return 2 * self.taps * self.rows * self.channels
