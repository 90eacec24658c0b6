"""`Sigmoid`: the logistic function, a gate from 0 to 1."""

from __future__ import annotations

from typing import Any

from iron_core import Tolerance, UnaryElementwise, widen
from iron_ops_aie.elementwise import kernels
from iron_ops_aie.logistic import logistic
from iron_ops_aie.rules import floats_only


class Sigmoid(UnaryElementwise):
    """y = 1 / (1 + exp(-x)). Shapes as in `UnaryElementwise`. Errors: ParamError for integers."""

    line_unit = 32

    def validate(self) -> None:
        floats_only(self, "T")

    def reference(self, x: Any) -> Any:
        return logistic(widen(x))

    def kernel(self) -> Any:
        return kernels.sigmoid(self.tile_size)

    def array_error(self, x: Any) -> Any:
        return kernels.measured_error(self.kernel(), self.reference(x))

    def tolerance(self) -> Tolerance:
        # exp, one addition, one division, each rounded once; exp's argument reaches 88. Beyond that float32's exp is
        # infinite, and y, which is then no normal number, comes out as zero.
        return Tolerance(terms=8, absolute=2.0**-126)
