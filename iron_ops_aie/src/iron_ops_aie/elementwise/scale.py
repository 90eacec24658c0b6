"""`Scale`: every number times one factor."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import Case, Param, Sweep, Testing, UnaryElementwise, widen
from iron_core.declare.rounding import held
from iron_ops_aie.elementwise import kernels
from iron_ops_aie.rules import finite, floats_only


class Scale(UnaryElementwise):
    """y = factor x, rounded once. Shapes as in `UnaryElementwise`.

    factor: a float32. To have it in x's own dtype, as some models do, round it before.

    Errors: ParamError for a factor that is not finite, for integers.
    """

    factor: float = Param(array=True)

    test = Testing(
        Sweep(factor=0.3),
        Case(size=1000, factor=25.25),
        Case(size=4096, factor=-1 / 3, T=np.float32),
        draw=dict(centered=("x",)),
    )

    def validate(self) -> None:
        floats_only(self, "T")
        finite(self, "factor", np.float32)

    def reference(self, x: Any) -> Any:
        return widen(x) * held(self.factor, np.float32)

    def kernel(self) -> Any:
        return kernels.scale(self.tile_size, held(self.factor, np.float32))
