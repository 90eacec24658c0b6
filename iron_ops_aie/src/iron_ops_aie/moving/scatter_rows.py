"""`ScatterRows`: rows written to places of a pool."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import Case, DType, Extent, In, InOut, Operator, Param, Testing, Tolerance, bfloat16, round_to
from iron_core.errors import ParamError
from iron_ops_aie.rules import is_integer


class ScatterRows(Operator):
    """pool[places[r]] = x[r], row by row; of a place that is named twice the last row stays. All other rows stay as they were.

    x: (rows, width). pool: (slots, width), of a dtype of its own (`C`), to which numbers are rounded once. places: int32 (rows,),
    negative from the end and clipped, as `Copy` takes ids. Per call, `valid` bounds the rows.

    No array: by its reference and on the CPU.

    Errors: ParamError for a conversion from or to integers.
    """

    rows: int = Param()
    width: int = Param()
    slots: int = Param()
    T: Any = DType(default=bfloat16)
    C: Any = DType(default=lambda op: op.T)
    x = In(rows, width, dtype=T)
    pool = InOut(slots, width, dtype=C)
    places = In(rows, dtype=np.int32)
    valid = Extent(rows)

    test = Testing(
        Case(rows=1, width=64, slots=5),
        Case(rows=9, width=33, slots=20, bounds=dict(valid=6)),
        Case(rows=7, width=200, slots=64, T=np.float32, C=np.float16),
        Case(rows=40, width=192, slots=30, T=np.float32),
        Case(rows=5, width=7, slots=9, T=np.int32),
        Case(rows=512, width=192, slots=4096, T=np.float32, C=bfloat16, bench=True),
        draw=dict(centered=("x", "pool"), places=lambda op, rng: rng.integers(-op.slots - 1, op.slots + 2, op.rows)),
    )

    def validate(self) -> None:
        if self.T != self.C and (is_integer(self.T) or is_integer(self.C)):
            raise ParamError(f"ScatterRows: T={self.T}, C={self.C}; legal: one dtype, or two of float32, bfloat16, float16.")

    def reference(self, x: Any, pool: Any, places: Any) -> Any:
        pool = np.array(pool)
        for row, place in zip(np.asarray(x), np.clip(places, -self.slots, self.slots - 1), strict=True):
            pool[place] = round_to(row, pool.dtype)
        return pool

    def tolerance(self) -> Tolerance:
        return Tolerance(exact=True)
