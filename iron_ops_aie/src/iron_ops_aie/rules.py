"""Rules that several operators share."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from iron_core import nearest, require
from iron_core.declare.formats import as_format
from iron_core.declare.rounding import held
from iron_core.errors import ParamError


def is_integer(dtype: Any) -> bool:
    """Are these whole numbers? False for a packed format, which stands for floats."""
    format = as_format(dtype)
    return not format.packed and format.dtype.kind in "iu"


def floats_only(op: Any, *fields: str) -> None:
    """ParamError where one of these dtype variables is an integer."""
    for name in fields:
        if is_integer(getattr(op, name)):
            dtype = getattr(op, name)
            raise ParamError(f"{type(op).__name__}: {name}={dtype}; legal: float32, bfloat16, float16.")


def divisors(n: int, most: int | None = None) -> list[int]:
    """Those of n, or those that are at most `most`; the least first."""
    small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    found = sorted({*small, *(n // d for d in small)})
    return found if most is None else [d for d in found if d <= most]


def require_divisor(op: Any, field: str, whole: str, most: int) -> None:
    """Unresolvable unless one field divides another and is at most `most`."""
    have, n = getattr(op, field), getattr(op, whole)
    legal = divisors(n, most)
    require(
        have in legal,
        f"{type(op).__name__}: {field}={have} of {whole}={n}; it must divide them and be at most {most}. Nearest legal: "
        f"{field}={nearest(have, legal)}.",
    )


def finite(op: Any, name: str, dtype: Any) -> None:
    """ParamError unless this field is finite in `dtype`, in which the operator takes it."""
    value = getattr(op, name)
    if not np.isfinite(held(value, dtype)):
        raise ParamError(f"{type(op).__name__}: {name}={value}; legal: a finite {np.dtype(dtype).name}.")
