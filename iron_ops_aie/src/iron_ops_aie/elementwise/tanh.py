"""`Tanh`: the hyperbolic tangent."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import Tolerance, UnaryElementwise, widen
from iron_ops_aie.elementwise import kernels
from iron_ops_aie.rules import floats_only


class Tanh(UnaryElementwise):
    """y = tanh x. Shapes as in `UnaryElementwise`. Errors: ParamError for integers."""

    line_unit = 32

    def validate(self) -> None:
        floats_only(self, "T")

    def reference(self, x: Any) -> Any:
        return np.tanh(widen(x))

    def kernel(self) -> Any:
        return kernels.tanh(self.tile_size)

    def array_error(self, x: Any) -> Any:
        return kernels.measured_error(self.kernel(), self.reference(x))

    def tolerance(self) -> Tolerance:
        # tanh in float32 is good to a few units.
        return Tolerance(terms=8)
