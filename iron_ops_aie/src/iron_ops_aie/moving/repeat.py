"""`Repeat`: rows repeated in place."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import Auto, Case, Divisors, DType, Extent, In, Operator, Out, Param, Testing, Tolerance, bfloat16
from iron_core.devices import WORD
from iron_core.errors import ParamError
from iron_ops_aie.moving.copy_patterns import OBJECT_BYTES
from iron_ops_aie.moving.repeat_array import RepeatArray


class Repeat(RepeatArray, Operator):
    """y = x with each row `repeat` times in a row, as np.repeat(x, repeat, axis=0).

    x: (rows, cols). y: (rows * repeat, cols). `valid` bounds the rows of x; y then has `repeat` times as many.

    The array has no cores: one channel passes x on `repeat` times, in objects of `tile_size` elements, a row or part of one.

    Errors: ParamError for a repeat below 1, or an output given that has another number of rows. Unresolvable where no array
    takes it.
    """

    rows: int = Param()
    cols: int = Param()
    repeat: int = Param(default=2)
    out_rows: int = Param(default=lambda op: op.rows * max(1, op.repeat))
    T: Any = DType(default=bfloat16)
    tile_size: int = Auto(
        domain=Divisors(of=lambda op: op.cols, step=lambda op: WORD // op.T.itemsize, cap=lambda op: OBJECT_BYTES // op.T.itemsize, span=3)
    )
    x = In(rows, cols, dtype=T, tile=tile_size)
    y = Out(out_rows, cols, dtype=T, tile=tile_size)
    valid = Extent(rows, multiples=(out_rows,))

    test = Testing(
        Case(rows=8, cols=64, repeat=4, lower=True),
        Case(rows=3, cols=33, repeat=3, T=np.float32, lower=True),
        Case(rows=5, cols=33, repeat=2),
        Case(rows=8, cols=64, repeat=3, bounds=dict(valid=5), lower=True),
        Case(rows=1, cols=8, repeat=1, lower=True),
        Case(rows=4, cols=6000, repeat=2, tile_size=1500, lower=True),
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
