"""`GELU`: the Gaussian error linear unit, in its tanh form."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from iron_core import Tolerance, UnaryElementwise, widen
from iron_ops_aie.elementwise import kernels
from iron_ops_aie.rules import floats_only


class GELU(UnaryElementwise):
    """y = x (1 + tanh(u)) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3), which is x / (1 + exp(-2 u)).

    Shapes as in `UnaryElementwise`. Errors: ParamError for integers.
    """

    line_unit = 32

    def validate(self) -> None:
        floats_only(self, "T")

    @staticmethod
    def _argument(x: np.ndarray) -> np.ndarray:
        return math.sqrt(2 / math.pi) * x * (1 + 0.044715 * x * x)

    def reference(self, x: Any) -> Any:
        wide = widen(x)
        with np.errstate(over="ignore"):
            return wide / (1 + np.exp(-2 * self._argument(wide)))

    def magnitude(self, x: Any) -> Any:
        """|y|, widened by how much the exponential's argument, itself rounded, moves it."""
        return np.abs(self.reference(x)) * (1 + np.minimum(np.abs(self._argument(widen(x))), 64))

    def kernel(self) -> Any:
        return kernels.gelu(self.tile_size)

    def array_error(self, x: Any) -> Any:
        return kernels.measured_error(self.kernel(), self.reference(x))

    def tolerance(self) -> Tolerance:
        # As for SiLU: where float32's exp leaves its range, y is below 3e-37 and may come out as zero.
        return Tolerance(terms=8, absolute=2.0**-121)
