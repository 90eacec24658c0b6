"""`Route`: which experts each row goes to, and with what weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import Auto, Case, DType, Extent, In, Operator, Out, Param, Testing, Tolerance, Value, Width
from iron_core.errors import ParamError
from iron_ops_aie.experts.route_array import RouteArray
from iron_ops_aie.experts.routes import route
from iron_ops_aie.rules import finite, floats_only


class Route(RouteArray, Operator):
    """The k experts of each row with the largest logits, and their shares of a softmax over all experts.

    logits: (rows, experts). ids: int32 (rows, k), by falling weight, the lower id first among equal logits. weights: float32
    (rows, k), exp(logit - max) over the sum of all experts' such, or with `renormalise` of the k chosen ones', times `scale`; in
    float64, exponentials as `exp64` has them on every device and sums in order, rounded once. `valid` bounds the rows.

    A row without a softmax, for a logit is NaN or infinite or all are -inf, has the ids 0 to k - 1 and weights NaN. A logit of -inf is
    otherwise chosen last, with weight 0.

    The array (bfloat16 or float32): a core per column takes a row at a time. It has two outputs, as many as a column's shim takes.
    A bound spares it rows where k and a row of logits are whole 16 bytes; else all rows go by.

    Errors: ParamError for integers, a k that is not 1 to experts, a scale that is no positive float32. Unresolvable where no array
    takes it.
    """

    rows: int = Param()
    experts: int = Param(array=True)
    k: int = Param(array=True)
    renormalise: bool = Param(default=False, array=True)
    scale: float = Param(default=1.0, array=True)
    T: Any = DType(default=np.float32)
    num_aie_columns: int = Auto(domain=Width())
    logits = In(rows, experts, dtype=T, tile=experts, per=num_aie_columns)
    ids = Out(rows, k, dtype=np.int32, tile=k, per=num_aie_columns)
    weights = Out(rows, k, dtype=np.float32, tile=k, per=num_aie_columns)
    valid = Extent(rows)
    count = Value(derive=lambda op: -(-(op.valid if op.counted else op.rows) // op.num_aie_columns))

    test = Testing(
        Case(rows=1, experts=60, k=4, lower=True),
        Case(rows=8, experts=128, k=8, renormalise=True, lower=True),
        Case(rows=12, experts=8, k=4, num_aie_columns=3, bounds=dict(valid=7), lower=True),
        Case(rows=6, experts=64, k=1, scale=2.5, lower=True),
        Case(rows=6, experts=18, k=10, renormalise=True, bounds=dict(valid=4), lower=True),
        Case(rows=3, experts=6, k=6, renormalise=True, scale=0.5, T=np.float16),
        Case(rows=7, experts=60, k=4, T="bfloat16", lower=True),
        Case(rows=130, experts=7, k=3),
        Case(rows=64, experts=512, k=10, renormalise=True, bench=True, lower=True),
        draw=dict(normal=("logits",)),
    )

    def validate(self) -> None:
        floats_only(self, "T")
        if not 1 <= self.k <= self.experts:
            raise ParamError(f"Route: k={self.k} of experts={self.experts}; legal: 1 to {self.experts}.")
        finite(self, "scale", np.float32)
        if not np.float32(self.scale) > 0:
            raise ParamError(f"Route: scale={self.scale}; legal: a positive float32.")

    def reference(self, logits: Any) -> Any:
        return route(logits, self.k, self.renormalise, self.scale)

    def tolerance(self) -> Tolerance:
        return Tolerance(exact=True)

    def ops(self) -> int:
        return 4 * self.rows * self.experts
