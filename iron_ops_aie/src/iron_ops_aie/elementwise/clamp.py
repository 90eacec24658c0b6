"""`Clamp`: numbers held between two bounds."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import Case, Param, Sweep, Testing, Tolerance, UnaryElementwise, Value, bfloat16, round_to, widen
from iron_core.declare.rounding import held
from iron_core.errors import ParamError
from iron_ops_aie.elementwise import kernels
from iron_ops_aie.rules import floats_only


def _bits(bound: float) -> int:
    """A bound as the cores are given it."""
    return int(round_to(np.float64(bound), bfloat16).view(np.uint16))


class Clamp(UnaryElementwise):
    """y = min(max(x, low), high); a NaN stays one. Shapes as in `UnaryElementwise`.

    low, high: rounded to x's dtype before they are used; either may be infinite. An array is given them as words, so one
    array serves every pair.

    Errors: ParamError for a low above high, for integers.
    """

    line_unit = 32

    low: float = Param()
    high: float = Param()
    low_bits = Value(derive=lambda op: _bits(op.low))
    high_bits = Value(derive=lambda op: _bits(op.high))

    test = Testing(
        Sweep(low=-0.75, high=1.25),
        Case(size=2048, low=0.5, high=1.5, lower=True),
        Case(size=2048, low=-3e4, high=float("inf"), lower=True),
        Case(size=1000, low=-0.1, high=0.1, T=np.float32),
        draw=dict(centered=("x",)),
    )

    def validate(self) -> None:
        floats_only(self, "T")
        if not self.low <= self.high:
            raise ParamError(f"Clamp: low={self.low} with high={self.high}; legal: a low of at most high.")

    def reference(self, x: Any) -> Any:
        return np.clip(widen(x), held(self.low, self.T), held(self.high, self.T))

    def words(self) -> tuple[Any, ...]:
        return self.low_bits, self.high_bits

    def kernel(self) -> Any:
        return kernels.clamp(self.tile_size)

    def tolerance(self) -> Tolerance:
        return Tolerance(exact=True)
