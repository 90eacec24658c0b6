"""`UnaryElementwise`: y[i] = f(x[i])."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from iron_core.bases.elementwise import Elementwise, stream
from iron_core.declare.operand import In, Out
from iron_core.declare.testing import Sweep, Testing


class UnaryElementwise(Elementwise):
    """One input, one output of the same size and dtype. A subclass gives `reference(self, x)`.

    x: (size,), a tensor of any shape. y: the same shape.
    """

    x = In(Elementwise.size, **stream())
    y = Out(Elementwise.size, **stream(), finish=True)

    test = Testing(Sweep(), Sweep(T=np.float32), draw=dict(centered=("x",)))

    @abstractmethod
    def reference(self, x: Any, /) -> Any:
        """y, unrounded."""
