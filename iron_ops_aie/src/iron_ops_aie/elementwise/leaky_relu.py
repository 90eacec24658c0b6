"""`LeakyReLU`: x where it is positive, else a little of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import Case, Param, Sweep, Testing, UnaryElementwise, require, widen
from iron_core.declare.rounding import held
from iron_ops_aie.elementwise import kernels
from iron_ops_aie.rules import finite, floats_only


class LeakyReLU(UnaryElementwise):
    """y = x where x > 0, else alpha x; a NaN stays one. Shapes as in `UnaryElementwise`.

    alpha: the slope below zero, rounded to x's dtype before it is used.

    Errors: ParamError for an alpha that is not finite, for integers.
    """

    line_unit = 64

    alpha: float = Param(default=0.01, array=True)

    test = Testing(
        Sweep(),
        Case(size=4096, alpha=-0.3, lower=True),
        Case(size=1000, alpha=1.5),
        Case(size=1000, alpha=0.2, T=np.float32),
        draw=dict(centered=("x",)),
    )

    def validate(self) -> None:
        floats_only(self, "T")
        finite(self, "alpha", self.T)

    def reference(self, x: Any) -> Any:
        wide = widen(x)
        return np.where(wide > 0, wide, held(self.alpha, self.T) * wide)

    def compatible(self, dev: Any) -> None:
        super().compatible(dev)
        require(self.alpha <= 1, f"LeakyReLU: alpha={self.alpha}; its kernel takes the larger of x and alpha x. Nearest legal alpha: 1.")

    def kernel(self) -> Any:
        return kernels.leaky_relu(self.tile_size, held(self.alpha, self.T))
