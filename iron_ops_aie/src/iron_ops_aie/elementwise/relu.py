"""`ReLU`: x where it is positive, else zero."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import Tolerance, UnaryElementwise, widen
from iron_ops_aie.elementwise import kernels
from iron_ops_aie.rules import floats_only


class ReLU(UnaryElementwise):
    """y = max(x, 0); a NaN stays one. Shapes as in `UnaryElementwise`. Errors: ParamError for integers."""

    line_unit = 32

    def validate(self) -> None:
        floats_only(self, "T")

    def reference(self, x: Any) -> Any:
        return np.maximum(widen(x), 0)

    def kernel(self) -> Any:
        return kernels.relu(self.tile_size)

    def tolerance(self) -> Tolerance:
        return Tolerance(exact=True)
