"""`ElementwiseMul`: y = a * b."""

from __future__ import annotations

from typing import Any

from iron_core import BinaryElementwise, widen
from iron_ops_aie.elementwise import kernels


class ElementwiseMul(BinaryElementwise):
    """y = a * b. Shapes as in `BinaryElementwise`."""

    def reference(self, a: Any, b: Any) -> Any:
        return widen(a) * widen(b)

    def kernel(self) -> Any:
        return kernels.mul(self.tile_size)
