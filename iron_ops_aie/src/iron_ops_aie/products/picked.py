"""Products of rows with matrices that ids pick, one for each row: what every operator with `ids` multiplies."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import require, widen
from iron_ops_aie.products import activations as arithmetic
from iron_ops_aie.rules import floats_only


def places(ids: Any, count: int) -> np.ndarray:
    """Which of `count` matrices each id picks: negative from the end and clipped, as `Copy` takes ids."""
    return np.clip(np.asarray(ids).astype(np.int64), -count, count - 1) % count


def picked(matrices: Any, x: Any, ids: Any, activations: str) -> np.ndarray:
    """Rows x (n, K) times the transposed matrix that each one's id picks of (E, M, K): float64 (n, M)."""
    if activations == "int8_block":
        return _each(matrices, x, ids, arithmetic.block_product)
    return _each(matrices, x, ids, lambda matrix, rows: widen(rows) @ arithmetic.numbers(matrix).T)


def magnitudes(matrices: Any, x: Any, ids: Any, activations: str) -> np.ndarray:
    """The sums of the absolute terms of `picked`."""
    if activations == "int8_block":
        return _each(matrices, x, ids, arithmetic.block_magnitude)
    return _each(matrices, x, ids, lambda matrix, rows: np.abs(widen(rows)) @ arithmetic.absolute(matrix).T)


def check_picked(op: Any) -> None:
    """ParamError where a product's matrices are picked by ids and its numbers are integers."""
    floats_only(op, "T", "W", "O")


def require_none_picked(op: Any) -> None:
    """Unresolvable where a product's matrices are picked by ids."""
    name = type(op).__name__
    what = "matrices that ids= pick have no array and run on the CPU, each by itself has one"
    require(not op.experts, f"{name}: experts=True; {what}. Legal: {name}.")


def _each(matrices: Any, x: Any, ids: Any, product: Any) -> np.ndarray:
    """Matrix by matrix, for the rows that it is picked for."""
    at = places(ids, matrices.shape[0]).reshape(-1)
    out = np.zeros((len(at), matrices.shape[1]))
    for e in np.unique(at):
        here = at == e
        out[here] = product(matrices[int(e)], x[here])
    return out
