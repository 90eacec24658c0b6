"""`Quantize`: numbers as int8 with one scale."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import Case, Out, Param, Sweep, Testing, Tolerance, UnaryElementwise, Value
from iron_core.bases.elementwise import stream
from iron_core.errors import ParamError
from iron_ops_aie.elementwise.kernels_quantize import inverse, measured, rounded
from iron_ops_aie.elementwise.quantize_array import QuantizeArray
from iron_ops_aie.rules import floats_only

_TINY, _HUGE = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)


class Quantize(QuantizeArray, UnaryElementwise):
    """y = x / scale as int8, rounded to the nearest even number and held from -127 to 127; symmetric, one scale for all.

    x: (size,), a tensor of any shape. y: the same shape, int8. scale: the number that one unit stands for; without it the one
    that makes the largest of x 127, which comes out as `found`, float32 (1,), behind y. x is multiplied by 1 / scale, both
    float32, so every device gives the same integers; where that scale is no normal number they are 0, as a NaN's is.

    The array: as any elementwise one, which is given the scale as a word; without a scale one core, which x passes twice.

    Errors: ParamError for a scale that is not positive and finite, for integers.
    """

    scale: Any = Param(default=None)
    measured: bool = Param(default=lambda op: op.scale is None, array=True)
    y = Out(UnaryElementwise.size, **stream(np.int8))
    found = Out(1, dtype=np.float32, tile=1, when=measured)
    factor_bits = Value(derive=lambda op: 0 if op.measured else int(inverse(np.float32(op.scale)).view(np.int32)))

    test = Testing(
        Sweep(scale=5 / 127),
        Case(size=2048, scale=0.01, lower=True),
        Case(size=2048, lower=True),
        Case(size=1000, T=np.float32),
        Case(size=1000, scale=0.02, T=np.float32),
        draw=dict(centered=("x",)),
    )

    def validate(self) -> None:
        floats_only(self, "T")
        self.check_derived("measured")
        scale = self.scale
        if scale is not None and not (isinstance(scale, (int, float)) and _TINY <= scale <= _HUGE):
            raise ParamError(f"Quantize: scale={scale!r}; legal: a positive float32, or None for the one that fits x.")

    def reference(self, x: Any) -> Any:
        if not self.measured:
            return rounded(x, inverse(np.float32(self.scale)))
        scale = measured(x)
        return rounded(x, inverse(scale)), np.array([scale])

    def tolerance(self) -> Tolerance:
        return Tolerance(exact=True)
