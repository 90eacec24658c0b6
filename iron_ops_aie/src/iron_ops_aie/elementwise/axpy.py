"""`AXPY`: y = scalar_factor a + b."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import BinaryElementwise, Case, Param, Sweep, Testing, widen
from iron_core.declare.rounding import held
from iron_ops_aie.elementwise import kernels
from iron_ops_aie.rules import finite, floats_only


class AXPY(BinaryElementwise):
    """y = scalar_factor a + b, rounded once. Shapes as in `BinaryElementwise`.

    scalar_factor: rounded to a's dtype before it is used.

    Errors: ParamError for a factor that is not finite, for integers.
    """

    line_unit = 64

    scalar_factor: float = Param(array=True)

    test = Testing(
        Sweep(scalar_factor=3.0),
        Case(size=4096, scalar_factor=1.003, lower=True),
        Case(size=1000, scalar_factor=-0.1),
        Case(size=1000, scalar_factor=-0.1, T=np.float32),
        draw=dict(centered=("a", "b")),
    )

    def validate(self) -> None:
        floats_only(self, "T")
        finite(self, "scalar_factor", self.T)

    def reference(self, a: Any, b: Any) -> Any:
        return held(self.scalar_factor, self.T) * widen(a) + widen(b)

    def magnitude(self, a: Any, b: Any) -> Any:
        return np.abs(held(self.scalar_factor, self.T) * widen(a)) + np.abs(widen(b))

    def kernel(self) -> Any:
        return kernels.axpy(self.tile_size, held(self.scalar_factor, self.T))
