"""Rules that several operators' `validate()` share."""

from __future__ import annotations

from typing import Any

import numpy as np

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


def finite(op: Any, name: str, dtype: Any) -> None:
    """ParamError unless this field is finite in `dtype`, in which the operator takes it."""
    value = getattr(op, name)
    if not np.isfinite(held(value, dtype)):
        raise ParamError(f"{type(op).__name__}: {name}={value}; legal: a finite {np.dtype(dtype).name}.")
