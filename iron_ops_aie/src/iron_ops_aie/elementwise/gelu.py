"""`GELU`: the Gaussian error linear unit, exactly or in its tanh form."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from iron_core import Case, Param, Sweep, Testing, Tolerance, UnaryElementwise, widen
from iron_core.errors import ParamError
from iron_ops_aie.elementwise import kernels
from iron_ops_aie.elementwise.kernels_gelu import gelu_exact
from iron_ops_aie.rules import floats_only

#: What `approximate` may be, as torch has it.
APPROXIMATE = ("tanh", "none")
_ERFC = np.frompyfunc(math.erfc, 1, 1)


class GELU(UnaryElementwise):
    """y = x times the share of the normal distribution below x, x (1 + erf(x / sqrt(2))) / 2, where `approximate` is "none".

    Where it is "tanh", y = x (1 + tanh(u)) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3), which is x / (1 + exp(-2 u)).
    Shapes as in `UnaryElementwise`. Errors: ParamError for another form, for integers.
    """

    line_unit = 32

    approximate: str = Param(default="tanh", array=True)

    test = Testing(
        Sweep(),
        Sweep(T=np.float32),
        Sweep(approximate="none"),
        Case(size=4096, approximate="none", T=np.float32),
        draw=dict(centered=("x",)),
    )

    def validate(self) -> None:
        floats_only(self, "T")
        if self.approximate not in APPROXIMATE:
            raise ParamError(f"GELU: approximate={self.approximate!r}; legal: {', '.join(APPROXIMATE)}.")

    @staticmethod
    def _argument(x: np.ndarray) -> np.ndarray:
        return math.sqrt(2 / math.pi) * x * (1 + 0.044715 * x * x)

    def reference(self, x: Any) -> Any:
        wide = widen(x)
        with np.errstate(over="ignore", invalid="ignore"):
            if self.approximate == "none":
                return wide * np.asarray(_ERFC(wide * -math.sqrt(0.5)), np.float64) * 0.5
            return wide / (1 + np.exp(-2 * self._argument(wide)))

    def magnitude(self, x: Any) -> Any:
        """|y|, widened by how much the exponential's argument, itself rounded, moves it."""
        wide = widen(x)
        with np.errstate(over="ignore"):
            argument = np.abs(self._argument(wide)) if self.approximate == "tanh" else wide * wide / 2
        return np.abs(self.reference(x)) * (1 + np.minimum(argument, 64))

    def kernel(self) -> Any:
        return kernels.gelu(self.tile_size) if self.approximate == "tanh" else gelu_exact(self.tile_size)

    def array_error(self, x: Any) -> Any:
        return kernels.measured_error(self.kernel(), self.reference(x)) if self.approximate == "tanh" else None

    def tolerance(self) -> Tolerance:
        # As for SiLU: where float32's exp leaves its range, y is below 3e-37 and may come out as zero. The exact form has a
        # polynomial's ten roundings besides.
        return Tolerance(terms=8 if self.approximate == "tanh" else 20, absolute=2.0**-121)
