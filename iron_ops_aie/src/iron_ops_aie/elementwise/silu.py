"""`SiLU`: x times its sigmoid."""

from __future__ import annotations

from typing import Any

from iron_core import Tolerance, UnaryElementwise, widen
from iron_ops_aie.elementwise import kernels
from iron_ops_aie.logistic import silu
from iron_ops_aie.rules import floats_only


class SiLU(UnaryElementwise):
    """y = x / (1 + exp(-x)). Shapes as in `UnaryElementwise`. Errors: ParamError for integers."""

    line_unit = 32

    def validate(self) -> None:
        floats_only(self, "T")

    def reference(self, x: Any) -> Any:
        return silu(widen(x))

    def kernel(self) -> Any:
        return kernels.silu(self.tile_size)

    def array_error(self, x: Any) -> Any:
        return kernels.measured_error(self.kernel(), self.reference(x))

    def tolerance(self) -> Tolerance:
        # exp, one addition, one division, each rounded once; exp's argument reaches 88. Beyond that float32's exp is
        # infinite, and y, which is then below 3e-37, comes out as zero.
        return Tolerance(terms=8, absolute=2.0**-121)
