"""Rules that several operators' `validate()` share."""

from __future__ import annotations

from typing import Any

from iron_core.declare.formats import BlockQuant
from iron_core.errors import ParamError


def is_integer(dtype: Any) -> bool:
    """Are these whole numbers? False for a block format, which stands for floats."""
    return not isinstance(dtype, BlockQuant) and dtype.kind in "iu"


def floats_only(op: Any, *fields: str) -> None:
    """ParamError where one of these dtype variables is an integer."""
    for name in fields:
        if is_integer(getattr(op, name)):
            dtype = getattr(op, name)
            raise ParamError(f"{type(op).__name__}: {name}={dtype}; legal: float32, bfloat16, float16.")
