"""What a config's fields may hold: attrs validators, each of which refuses by ParamError with the class, the field, the value and
what would be legal.

    hidden_size: int = attrs.field(validator=counted)
    reach: int | None = attrs.field(default=None, validator=optional(counted))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import attrs
import numpy as np

from iron_core.errors import ParamError

Validator = Callable[[Any, Any, Any], None]


def _check(legal: str, holds: Callable[[Any], bool]) -> Validator:
    def validator(config: Any, field: attrs.Attribute[Any], value: Any) -> None:
        if not holds(value):
            absent = ", or None" if field.default is None else ""
            raise ParamError(f"{type(config).__name__}: {field.name}={value!r}; legal: {legal}{absent}.")

    return validator


def is_flag(value: Any) -> bool:
    """True or False, Python's or numpy's?"""
    return isinstance(value, (bool, np.bool_))


def is_positive(value: Any) -> bool:
    """A finite number over 0?"""
    return isinstance(value, (int, float, np.integer, np.floating)) and not is_flag(value) and bool(0 < value < math.inf)


#: How many there are of something.
counted = _check("a whole number, 1 or more", lambda n: isinstance(n, (int, np.integer)) and not is_flag(n) and bool(n >= 1))
positive = _check("a positive number", is_positive)
flag = _check("True or False", is_flag)


def among(names: Iterable[str]) -> Validator:
    """One of these names."""
    legal = tuple(names)
    return _check(", ".join(legal), lambda name: isinstance(name, str) and name in legal)


def made_by(kind: type) -> Validator:
    """An instance of this class."""
    return _check(f"a {kind.__name__}", lambda value: isinstance(value, kind))


def optional(validator: Validator) -> Validator:
    """None, or what `validator` takes."""
    return attrs.validators.optional(validator)
