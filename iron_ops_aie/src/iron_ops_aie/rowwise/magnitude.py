"""`Magnitude`: how large complex numbers are."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import Case, DType, Out, Param, Rowwise, Testing, Tolerance, widen
from iron_core.declare.tolerance import EPS32
from iron_core.errors import ParamError
from iron_ops_aie.rowwise import kernels_limbs

#: How far off a magnitude may be, of itself.
RELATIVE = 2e-7


class Magnitude(Rowwise):
    """y = sqrt(re^2 + im^2), of rows that hold cols / 2 numbers re, then as many im.

    x: (rows, cols) float32, as a transform gives it; y: (rows, cols / 2) float32.

    Errors: ParamError for odd cols or another dtype. Unresolvable where no array takes it.
    """

    array_dtype = np.dtype(np.float32)
    row_unit = 64

    T: Any = DType(default=np.float32)
    out_cols: int = Param(default=lambda op: op.cols // 2)
    y = Out(Rowwise.rows, out_cols, dtype=T, tile=out_cols, per=(Rowwise.num_aie_columns, Rowwise.num_channels))

    test = Testing(
        Case(rows=8, cols=64, lower=True),
        Case(rows=24, cols=64, bounds=dict(valid=7), lower=True),
        Case(rows=7, cols=576, lower=True),
        Case(rows=16, cols=8192, lower=True),
        Case(rows=30, cols=128, num_channels=2, lower=True),
        Case(rows=5, cols=402),
        Case(rows=512, cols=1024, bench=True, lower=True),
        draw=dict(x=lambda op, rng: rng.standard_normal((op.rows, op.cols)) * 10 ** rng.uniform(-36, 36, (op.rows, 1))),
    )

    def validate(self) -> None:
        if self.T != np.float32:
            raise ParamError(f"Magnitude: T={self.T.name}; legal: float32.")
        if self.cols % 2:
            raise ParamError(f"Magnitude: cols={self.cols} is odd; legal: as many re as im.")
        self.check_derived("out_cols")

    def reference(self, x: Any) -> Any:
        wide = widen(x)
        re, im = wide[:, : self.cols // 2], wide[:, self.cols // 2 :]
        return np.sqrt(re * re + im * im)

    def kernel(self) -> Any:
        return kernels_limbs.magnitudes(self.cols)

    def tolerance(self) -> Tolerance:
        # Besides, a unit of the smallest numbers there are.
        return Tolerance(terms=RELATIVE / EPS32 - 8, ulps=0, absolute=2.0**-149)

    def ops(self) -> int:
        return 2 * self.rows * self.cols
