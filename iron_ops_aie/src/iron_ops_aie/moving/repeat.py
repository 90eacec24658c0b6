"""`Repeat`: rows repeated in place."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import Case, DType, Extent, In, Operator, Out, Param, Testing, Tolerance, bfloat16
from iron_core.errors import ParamError


class Repeat(Operator):
    """y = x with each row `repeat` times in a row, as np.repeat(x, repeat, axis=0).

    x: (rows, cols). y: (rows * repeat, cols). `valid` bounds the rows of x; y then has `repeat` times as many.

    Errors: ParamError for a repeat below 1, or an output given that has another number of rows.
    """

    rows: int = Param()
    cols: int = Param()
    repeat: int = Param(default=2)
    out_rows: int = Param(default=lambda op: op.rows * max(1, op.repeat))
    T: Any = DType(default=bfloat16)
    x = In(rows, cols, dtype=T)
    y = Out(out_rows, cols, dtype=T)
    valid = Extent(rows, multiples=(out_rows,))

    test = Testing(
        Case(rows=8, cols=64, repeat=4),
        Case(rows=3, cols=33, repeat=3, T=np.float32),
        Case(rows=1, cols=8, repeat=1),
        Case(rows=512, cols=1024, repeat=4, bench=True),
    )

    def validate(self) -> None:
        if self.repeat < 1:
            raise ParamError(f"Repeat: repeat={self.repeat}; legal: 1 or more.")
        self.check_derived("out_rows")

    def reference(self, x: Any) -> Any:
        return np.repeat(x, self.repeat, axis=0)

    def tolerance(self) -> Tolerance:
        return Tolerance(exact=True)
