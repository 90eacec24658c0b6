"""`UnaryElementwise`: y[i] = f(x[i])."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from iron_core.declare.field import DType, Param
from iron_core.declare.formats import bfloat16
from iron_core.declare.operand import In, Out
from iron_core.declare.operator import Operator
from iron_core.declare.testing import Sweep, Testing
from iron_core.declare.value import Extent


class UnaryElementwise(Operator):
    """One input, one output of the same size and dtype. A subclass gives `reference(self, x)`.

    x: (size,), a tensor of any shape. y: the same shape.
    """

    elementwise: ClassVar[bool] = True

    size: int = Param()
    T: Any = DType(default=bfloat16)
    x = In(size, dtype=T)
    y = Out(size, dtype=T)
    valid = Extent(size)

    test = Testing(Sweep(), Sweep(T=np.float32), draw=dict(centered=("x",)))

    def ops(self) -> int:
        return self.size
