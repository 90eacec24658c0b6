"""`ElementwiseMax`: y = max(a, b)."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import BinaryElementwise, Tolerance, widen
from iron_ops_aie.elementwise import kernels


class ElementwiseMax(BinaryElementwise):
    """y = max(a, b); where either is a NaN, so is y. Shapes as in `BinaryElementwise`."""

    def reference(self, a: Any, b: Any) -> Any:
        return np.maximum(widen(a), widen(b))

    def kernel(self) -> Any:
        return kernels.maximum(self.tile_size)

    def tolerance(self) -> Tolerance:
        return Tolerance(exact=True)
