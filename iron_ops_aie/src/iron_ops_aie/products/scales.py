"""What sums of integers are multiplied by where a product's result is floats: `scale`, a number for all of them, and `row_scale`, a
tensor with a number for each row of activations.

In float32 a result is float(sum) * (scale * row_scale), or float(sum) * scale, each operation rounded, and then rounded to its dtype.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import widen
from iron_core.errors import ParamError
from iron_ops_aie.products import activations as arithmetic
from iron_ops_aie.rules import is_integer


def is_scaled(op: Any) -> bool:
    """Are weights integers, and what their products add up to made floats?"""
    return is_integer(op.W) and not is_integer(op.O)


def check(op: Any) -> None:
    """ParamError unless a product of these dtypes has its arithmetic and its scales."""
    name = type(op).__name__
    if is_scaled(op) and is_integer(op.T):
        with np.errstate(over="ignore"):
            scale = np.float32(op.scale)
        if not (np.isfinite(scale) and scale > 0):
            raise ParamError(f"{name}: scale={op.scale}; legal: a positive float32.")
        return
    arithmetic.check(name, op.activations, op.T, op.W, op.O)
    given = f"scale={op.scale}" if op.scale != 1 else "row_scale=" if op.rows_scaled else ""
    if given:
        raise ParamError(f"{name}: {given} with T={op.T}, W={op.W}, O={op.O}; legal: integers of activations and weights, floats O.")


def applied(op: Any, sums: Any, row_scale: Any) -> Any:
    """Sums (rows, outputs), exact, times their scales, in float64; as they are where the product has none."""
    if not is_scaled(op):
        return sums
    sums = sums * float(np.float32(op.scale))
    return sums if row_scale is None else sums * widen(row_scale)[:, None]


def rounded(sums: Any, scale: np.float32) -> np.ndarray:
    """float32: sums rounded, times a scale, as kernels do it."""
    return np.asarray(sums).astype(np.float32) * scale
