"""`Transpose`: rows become columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import Case, DType, In, Operator, OptionalDim, Out, Param, Testing, Tolerance, bfloat16


class Transpose(Operator):
    """y = x^T, or of each of `num_batches` matrices.

    x: ([num_batches,] M, N). y: ([num_batches,] N, M).
    """

    M: int = Param()
    N: int = Param()
    num_batches: int = Param(default=1)
    T: Any = DType(default=bfloat16)
    x = In(OptionalDim(num_batches), M, N, dtype=T)
    y = Out(OptionalDim(num_batches), N, M, dtype=T)

    test = Testing(
        Case(M=64, N=128),
        Case(M=33, N=20, T=np.float32),
        Case(M=5, N=7, num_batches=3, T=np.int32),
        Case(M=1024, N=1024, bench=True),
    )

    def reference(self, x: Any) -> Any:
        return np.swapaxes(x, -1, -2)

    def tolerance(self) -> Tolerance:
        return Tolerance(exact=True)
