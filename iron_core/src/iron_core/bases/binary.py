"""`BinaryElementwise`: y[i] = f(a[i], b[i])."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from iron_core.bases.elementwise import Elementwise, stream
from iron_core.declare.operand import In, Out
from iron_core.declare.testing import Sweep, Testing


class BinaryElementwise(Elementwise):
    """Two inputs and one output of the same size and dtype. A subclass gives `reference(self, a, b)`.

    a, b: (size,), tensors of any shape. y: the shape of `a`.
    """

    a = In(Elementwise.size, **stream())
    b = In(Elementwise.size, **stream())
    y = Out(Elementwise.size, **stream(), finish=True)

    test = Testing(Sweep(), Sweep(T=np.float32), draw=dict(centered=("a", "b")))

    @abstractmethod
    def reference(self, a: Any, b: Any, /) -> Any:
        """y, unrounded."""
