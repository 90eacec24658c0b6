"""`Transpose`: rows become columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import (
    Auto,
    Case,
    Choices,
    Divisors,
    DType,
    In,
    Operator,
    OptionalDim,
    Out,
    Param,
    Testing,
    Tolerance,
    Value,
    Width,
    bfloat16,
)
from iron_ops_aie.moving.kernels import SQUARES
from iron_ops_aie.moving.transpose_array import TransposeArray


class Transpose(TransposeArray, Operator):
    """y = x^T, or of each of `num_batches` matrices.

    x: ([num_batches,] M, N). y: ([num_batches,] N, M).

    The array (bfloat16, uint8, uint32): num_aie_columns share out x's columns and num_channels a column's rows, a core each, tiles
    of `m` x `n` elements at a time. A memory tile puts squares of `s` x `s` where they belong, and a core transposes them.

    Errors: Unresolvable where no array takes it.
    """

    M: int = Param()
    N: int = Param()
    num_batches: int = Param(default=1)
    T: Any = DType(default=bfloat16)
    m: int = Auto(domain=Divisors(of=lambda op: op.M // op.num_channels, step=8, cap=128, span=2))
    n: int = Auto(domain=Divisors(of=lambda op: op.N // op.num_aie_columns, step=8, cap=128, span=2))
    s: int = Auto(array=True, domain=Choices(tuple(SQUARES)))
    num_aie_columns: int = Auto(domain=Width())
    num_channels: int = Auto(default=1, domain=Choices((1, 2)))
    x = In(OptionalDim(num_batches), M, N, dtype=T, tile=(m, n), per=(num_aie_columns, num_channels))
    y = Out(OptionalDim(num_batches), N, M, dtype=T, tile=(n, m), per=(num_aie_columns, num_channels))
    #: Tiles that a core transposes.
    tiles = Value(derive=lambda op: op.num_batches * op.M * op.N // (op.m * op.n * op.lanes))

    test = Testing(
        Case(M=64, N=128, lower=True),
        Case(M=2048, N=64, num_channels=2, lower=True),
        Case(M=96, N=40, num_batches=3, lower=True),
        Case(M=64, N=12, T=np.uint8, lower=True),
        Case(M=48, N=72, T=np.uint32, m=24, n=24, lower=True),
        Case(M=33, N=20, T=np.float32),
        Case(M=5, N=7, num_batches=3, T=np.int32),
        Case(M=1024, N=1024, bench=True),
    )

    def reference(self, x: Any) -> Any:
        return np.swapaxes(x, -1, -2)

    def tolerance(self) -> Tolerance:
        return Tolerance(exact=True)
