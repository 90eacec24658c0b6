"""`Softplus`: a smooth ReLU."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import Case, Sweep, Testing, Tolerance, UnaryElementwise, widen
from iron_ops_aie.elementwise import kernels_softplus
from iron_ops_aie.rules import floats_only


class Softplus(UnaryElementwise):
    """y = log(1 + exp(x)), which is x where x is large and exp(x) where it is far below zero. Shapes as in `UnaryElementwise`.

    Errors: ParamError for integers.
    """

    test = Testing(
        Sweep(),
        Case(size=1000, T=np.float32),
        draw=dict(centered=("x",)),
    )

    def validate(self) -> None:
        floats_only(self, "T")

    def reference(self, x: Any) -> Any:
        return np.logaddexp(0, widen(x))

    def kernel(self) -> Any:
        return kernels_softplus.softplus_line(self.tile_size)

    def tolerance(self) -> Tolerance:
        # exp, a sum, a logarithm and another sum, each rounded; exp's argument reaches 88. Below float32's normal numbers y may be zero.
        return Tolerance(terms=8, absolute=2.0**-126)
