"""`project`: rows times a matrix."""

from __future__ import annotations

from typing import Any

from iron_core.declare.formats import format_of
from iron_ops_aie import GEMM, GEMV, RowwiseAdd


def project(x: Any, weight: Any, activations: str = "exact", out: Any = None, bias: Any = None) -> Any:
    """x (rows, K) times weight (N, K) transposed, plus bias (N,) -> (rows, N): GEMV for one row, GEMM for more (or for rows a
    call bounds).

    activations: the arithmetic where the weight is block-quantised. out: the dtype of the result (x's by default).
    """
    extra: dict[str, Any] = {} if out is None else {"O": out}
    if format_of(weight).packed:
        extra["activations"] = activations
    if x.shape[0] == 1 and not x.bounds:
        y = GEMV(weight, x.reshape(x.shape[1]), **extra).reshape(1, -1)
    else:
        y = GEMM(x, weight, b_col_maj=True, **extra)
    return y if bias is None else RowwiseAdd(y, bias)
