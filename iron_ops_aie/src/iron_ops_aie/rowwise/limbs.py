"""`Limbs`: rows of float32 as rows of bfloat16, three to a number."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import Case, DType, Out, Param, Rowwise, Testing, Tolerance, bfloat16, round_to
from iron_core.errors import ParamError, ShapeError
from iron_ops_aie.rowwise import kernels_limbs


class Limbs(Rowwise):
    """Six planes, one behind another, of the limbs of each row: hi, mid, hi, lo, mid, hi.

    hi is x rounded to bfloat16, mid what is then left of x, rounded, and lo what is left of that: hi + mid + lo is x, where that is
    0 or from 2^-110 to 2^127 in size. x: (rows, cols) float32; y: (rows, 6 cols) bfloat16.

    A product of bfloat16 with the limbs of a weight (`Limbs.stacked(w)`) is one of float32: it adds six of the nine products of
    limbs, all but those below 2^-24 of the whole. `GEMM(Limbs(x), Limbs.stacked(w), O=np.float32)`.

    Errors: ParamError for another dtype. Unresolvable where no array takes it.
    """

    array_dtype = np.dtype(np.float32)
    row_unit = 32
    row_cap = 2048

    T: Any = DType(default=np.float32)
    out_cols: int = Param(default=lambda op: 6 * op.cols)
    y = Out(Rowwise.rows, out_cols, tile=out_cols, per=(Rowwise.num_aie_columns, Rowwise.num_channels))

    test = Testing(
        Case(rows=8, cols=64, lower=True),
        Case(rows=24, cols=64, bounds=dict(valid=7), lower=True),
        Case(rows=7, cols=576, lower=True),
        Case(rows=48, cols=2048, lower=True),
        Case(rows=30, cols=96, num_channels=2, lower=True),
        Case(rows=5, cols=33),
        Case(rows=512, cols=512, bench=True, lower=True),
        draw=dict(x=lambda op, rng: rng.standard_normal((op.rows, op.cols)) * 10 ** rng.uniform(-9, 9, (op.rows, op.cols))),
    )

    def validate(self) -> None:
        if self.T != np.float32:
            raise ParamError(f"Limbs: T={self.T.name}; legal: float32, which has three limbs.")
        self.check_derived("out_cols")

    def reference(self, x: Any) -> Any:
        hi, mid, lo = kernels_limbs.limbs(np.asarray(x))
        return np.concatenate([hi, mid, hi, lo, mid, hi], -1)

    @staticmethod
    def stacked(w: Any) -> np.ndarray:
        """The limbs of a weight (K, N) float32 as what rows of limbs are multiplied by: (6 K, N) bfloat16.

        ShapeError unless it has two dimensions.
        """
        w = np.asarray(w)
        if w.ndim != 2:
            raise ShapeError(f"Limbs.stacked: a weight of shape {list(w.shape)}; legal: (K, N).")
        hi, mid, lo = kernels_limbs.limbs(w)
        return round_to(np.concatenate([hi, hi, mid, hi, mid, lo]), bfloat16)

    def kernel(self) -> Any:
        return kernels_limbs.limb_planes(self.cols)

    def tolerance(self) -> Tolerance:
        return Tolerance(exact=True)

    def ops(self) -> int:
        return 5 * self.rows * self.cols
