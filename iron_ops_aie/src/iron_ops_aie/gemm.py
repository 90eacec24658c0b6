"""`GEMM`: a matrix product."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import (
    Q4_0,
    Q4_1,
    Q8_0,
    DType,
    Extent,
    In,
    Operator,
    OptionalDim,
    Out,
    Param,
    Select,
    Tolerance,
    bfloat16,
)
from iron_core.declare.formats import BlockQuant
from iron_core.declare.rounding import widen
from iron_core.declare.testing import Case, Testing
from iron_core.errors import ParamError
from iron_ops_aie import activations as arithmetic


class GEMM(Operator):
    """C = A @ B.

    A: (M, K), the activations. B: (K, N), or (N, K) with `b_col_maj`, the weights; block-quantised only as (N, K).
    C: (M, N), or (N, M) with `c_col_maj`. A, B and C have dtypes of their own (`T`, `W`, `O`; by default all as A).
    `activations` names the arithmetic of a block product (see `iron_ops_aie.activations`). Per call, `valid` bounds the
    rows M and `valid_k` the depth K. Reserved: B of `num_matrices` matrices, picked per row by `ids` (experts).

    Errors: ParamError for block weights without b_col_maj, floats that meet integers, arithmetic that does not exist for
    B's format; FormatError where K is not whole blocks.
    """

    linear_in = ("A",)

    M: int = Param()
    K: int = Param()
    N: int = Param()
    b_col_maj: bool = Param(default=False)
    c_col_maj: bool = Param(default=False)
    num_matrices: int = Param(default=1)
    activations: str = Param(default="exact")
    experts: bool = Param(default=False)
    T: Any = DType(default=bfloat16)
    W: Any = DType(default=lambda op: op.T, blocks=True)
    O: Any = DType(default=lambda op: op.T)  # noqa: E741
    A = In(M, K, dtype=T)
    B = In(OptionalDim(num_matrices), Select(b_col_maj, (N, K), (K, N)), dtype=W)
    ids = In(M, dtype=np.int32, when=experts)
    C = Out(Select(c_col_maj, (N, M), (M, N)), dtype=O)
    valid = Extent(M)
    valid_k = Extent(K)

    test = Testing(
        Case(M=64, K=64, N=64),
        Case(M=5, K=96, N=33, b_col_maj=True, T=np.float32),
        Case(M=17, K=40, N=24, T=np.float32),
        Case(M=16, K=64, N=40, b_col_maj=True, c_col_maj=True),
        Case(M=9, K=64, N=40, c_col_maj=True, T=np.float32),
        Case(M=9, K=64, N=40, b_col_maj=True, W=bfloat16, T=np.float32),
        *(
            Case(M=m, K=192, N=72, b_col_maj=True, W=w, T=t, activations=a)
            for w, m in ((Q4_0, 3), (Q4_1, 13), (Q8_0, 8))
            for t in (np.dtype(np.float32), bfloat16)
            for a in arithmetic.ARITHMETIC
        ),
        Case(M=128, K=576, N=1536, b_col_maj=True, W=Q4_1, T=np.float32, activations="int8_block", bench=True),
        draw=dict(normal=("A", "B")),
    )

    def validate(self) -> None:
        if self.experts or self.num_matrices != 1:
            raise ParamError("GEMM: matrices picked by ids= (experts=True) are reserved for a later version. Legal: one B, no ids.")
        arithmetic.check("GEMM", self.activations, self.T, self.W, self.O)
        if isinstance(self.W, BlockQuant):
            if not self.b_col_maj:
                raise ParamError(f"GEMM: {self.W.name} weights are rows of K; give B as (N, K) with b_col_maj=True.")
            self.W.row_bytes(self.K)

    def _right(self, B: np.ndarray) -> np.ndarray:
        """B as (K, N); under a bound on K, rows of blocks come whole and are cut here."""
        return B[:, : self.K].T if self.b_col_maj else B

    def reference(self, A: Any, B: Any, ids: Any = None) -> Any:
        if self.activations == "int8_block":
            product = arithmetic.block_product(B, A)
        else:
            product = widen(A) @ self._right(arithmetic.numbers(B))
        return product.T if self.c_col_maj else product

    def magnitude(self, A: Any, B: Any, ids: Any = None) -> Any:
        if self.activations == "int8_block":
            sums = arithmetic.block_magnitude(B, A)
        else:
            sums = np.abs(widen(A)) @ self._right(arithmetic.absolute(B))
        return sums.T if self.c_col_maj else sums

    def tolerance(self) -> Tolerance:
        return Tolerance(terms=self.K)

    def ops(self) -> int:
        return 2 * self.M * self.K * self.N
