"""`Log`: the natural logarithm of float32."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import Case, In, Param, Sweep, Testing, Tolerance, UnaryElementwise, widen
from iron_core.bases.elementwise import stream
from iron_ops_aie.elementwise import kernels_log
from iron_ops_aie.rules import finite, floats_only


def _decades(op: Any, rng: np.random.Generator) -> np.ndarray:
    """Positive numbers of every size: an energy's."""
    return 10 ** rng.uniform(-6, 5, op.size)


class Log(UnaryElementwise):
    """y = log(x + offset), within one unit of T's last place. -infinity at a sum of zero, a NaN below it.

    x: (size,), float32, a tensor of any shape. y: the same shape, T. offset: a float32; the sum is one too.

    Errors: ParamError for an offset that is not finite, for integers.
    """

    offset: float = Param(default=0.0, array=True)
    x = In(UnaryElementwise.size, **stream(np.float32))

    test = Testing(
        Sweep(offset=1e-3),
        Case(size=4096, lower=True),
        Case(size=1000, T=np.float32),
        draw=dict(x=_decades),
    )

    def validate(self) -> None:
        floats_only(self, "T")
        finite(self, "offset", np.float32)

    def reference(self, x: Any) -> Any:
        total = np.asarray(x, np.float32) + np.float32(self.offset)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.log(widen(total))

    def kernel(self) -> Any:
        return kernels_log.log(self.tile_size, float(np.float32(self.offset)))

    def tolerance(self) -> Tolerance:
        return Tolerance(ulps=1)
