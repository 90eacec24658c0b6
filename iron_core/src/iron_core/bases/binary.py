"""`BinaryElementwise`: y[i] = f(a[i], b[i])."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from iron_core.declare.field import DType, Param
from iron_core.declare.formats import bfloat16
from iron_core.declare.operand import In, Out
from iron_core.declare.operator import Operator
from iron_core.declare.testing import Sweep, Testing
from iron_core.declare.value import Extent


class BinaryElementwise(Operator):
    """Two inputs and one output of the same size and dtype. A subclass gives `reference(self, a, b)`.

    a, b: (size,), tensors of any shape. y: the shape of `a`.
    """

    elementwise: ClassVar[bool] = True

    size: int = Param()
    T: Any = DType(default=bfloat16)
    a = In(size, dtype=T)
    b = In(size, dtype=T)
    y = Out(size, dtype=T)
    valid = Extent(size)

    test = Testing(Sweep(), Sweep(T=np.float32), draw=dict(centered=("a", "b")))

    def ops(self) -> int:
        return self.size
