"""`Rowwise`: each row of y depends on the same row of x."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from iron_core.declare.field import DType, Param
from iron_core.declare.formats import bfloat16
from iron_core.declare.operand import In, Out
from iron_core.declare.operator import Operator
from iron_core.declare.testing import Sweep, Testing
from iron_core.declare.value import Extent


class Rowwise(Operator):
    """Rows of `cols` elements, each computed alone. A subclass gives `reference(self, x, ...)`.

    x: (rows, cols). y: (rows, cols). `valid` bounds the rows.
    """

    rowwise: ClassVar[bool] = True

    rows: int = Param()
    cols: int = Param()
    T: Any = DType(default=bfloat16)
    x = In(rows, cols, dtype=T)
    y = Out(rows, cols, dtype=T)
    valid = Extent(rows)

    test = Testing(Sweep(rows=True), Sweep(rows=True, T=np.float32), draw=dict(centered=("x",)))

    def ops(self) -> int:
        return self.rows * self.cols
