"""`Rowwise`: each row of y depends on the same row of x."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from iron_core.bases.rowwise_array import RowwiseArray
from iron_core.declare.domain import Choices, Width
from iron_core.declare.field import Auto, DType, Param
from iron_core.declare.formats import bfloat16
from iron_core.declare.operand import In, Out
from iron_core.declare.operator import Operator
from iron_core.declare.testing import Sweep, Testing
from iron_core.declare.value import Extent, Value


class Rowwise(RowwiseArray, Operator):
    """Rows of `cols` elements, each computed alone. A subclass gives `reference(self, x, ...)`, and `kernel()` where it has an array.

    x: (rows, cols). y: (rows, cols). `valid` bounds the rows. An input declared by `every_row()` is one vector for all of them.
    """

    rowwise: ClassVar[bool] = True

    rows: int = Param()
    cols: int = Param()
    T: Any = DType(default=bfloat16)
    num_aie_columns: int = Auto(domain=Width())
    num_channels: int = Auto(default=1, domain=Choices((1, 2)))
    x = In(rows, cols, dtype=T, tile=cols, per=(num_aie_columns, num_channels))
    y = Out(rows, cols, dtype=T, tile=cols, per=(num_aie_columns, num_channels))
    valid = Extent(rows)
    count = Value(derive=lambda op: -(-op.valid // (op.num_aie_columns * op.num_channels)))

    test = Testing(Sweep(rows=True), Sweep(rows=True, T=np.float32), draw=dict(centered=("x",)))

    @abstractmethod
    def reference(self, *inputs: Any, **scratchpads: Any) -> Any:
        """As `Operator.reference`: a subclass gives it."""

    def ops(self) -> int:
        return self.rows * self.cols


def every_row(dtype: Any = Rowwise.T, **options: Any) -> Any:
    """An input of `cols` numbers that every row meets. options: further keywords of `In`."""
    return In(Rowwise.cols, dtype=dtype, tile=Rowwise.cols, per=Rowwise.num_channels, replicate=True, depth=1, **options)
