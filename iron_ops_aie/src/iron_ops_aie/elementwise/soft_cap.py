"""`SoftCap`: numbers bent to stay within a cap."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import Case, Param, Sweep, Testing, Tolerance, UnaryElementwise, widen
from iron_core.errors import ParamError
from iron_ops_aie.elementwise import kernels_soft_cap
from iron_ops_aie.rules import floats_only


class SoftCap(UnaryElementwise):
    """y = cap tanh(x / cap): x where it is small beside `cap`, never beyond it. Shapes as in `UnaryElementwise`.

    Errors: ParamError for a cap that is not from 2^-100 to 2^100, for integers.
    """

    cap: float = Param(array=True)

    test = Testing(
        Sweep(cap=1.5),
        Case(size=1000, cap=0.25),
        Case(size=4096, cap=30.0, T=np.float32),
        Case(size=4096, cap=0.5, T=np.float32),
        draw=dict(centered=("x",)),
    )

    def validate(self) -> None:
        floats_only(self, "T")
        if not 2.0**-100 <= self.cap <= 2.0**100:
            raise ParamError(f"SoftCap: cap={self.cap}; legal: a positive number, from 2^-100 to 2^100.")

    def reference(self, x: Any) -> Any:
        return self.cap * np.tanh(widen(x) / self.cap)

    def kernel(self) -> Any:
        return kernels_soft_cap.soft_cap(self.tile_size, self.cap)

    def tolerance(self) -> Tolerance:
        # The quotient, tanh and the product, each rounded; tanh in float32 is good to a few units.
        return Tolerance(terms=8)
