"""`ElementwiseAdd`: y = a + b."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import BinaryElementwise, widen
from iron_ops_aie.elementwise import kernels


class ElementwiseAdd(BinaryElementwise):
    """y = a + b. Shapes as in `BinaryElementwise`."""

    def reference(self, a: Any, b: Any) -> Any:
        return widen(a) + widen(b)

    def magnitude(self, a: Any, b: Any) -> Any:
        return np.abs(widen(a)) + np.abs(widen(b))

    def kernel(self) -> Any:
        return kernels.add(self.tile_size)
