"""Which operators are the same: the keys of contract, array and design, and an operator's label."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from iron_core.declare.field import AutoField
from iron_core.declare.pattern import Pattern


def canonical(value: Any) -> Any:
    """A field's value as hashable data that prints alike in every process."""
    if isinstance(value, np.dtype):
        return value.name
    if isinstance(value, type) and issubclass(value, np.generic):
        return np.dtype(value).name
    if isinstance(value, (list, tuple)):
        return tuple(canonical(v) for v in value)
    return value


def _class_name(op: Any) -> str:
    return f"{type(op).__module__}.{type(op).__qualname__}"


def contract_key(op: Any) -> tuple[Any, ...]:
    """Class, params, dtypes and formats."""
    pairs = tuple((k, canonical(getattr(op, k))) for k, f in op.fields.items() if not isinstance(f, AutoField))
    return (_class_name(op), pairs)


def array_key(op: Any) -> tuple[Any, ...]:
    """Class and array-tier fields of a resolved operator."""
    return (_class_name(op), tuple((k, canonical(getattr(op, k))) for k in op.fields if k in op.array_tier))


def design_key(op: Any) -> tuple[Any, ...]:
    """Class and every field of a resolved operator."""
    return (_class_name(op), tuple((k, canonical(getattr(op, k))) for k in op.fields))


def shown(value: Any) -> str:
    """A field's value in a label."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        return repr(value).replace(".", "p").replace("-", "n").replace("+", "")
    if isinstance(value, np.dtype):
        return value.name
    if isinstance(value, Pattern):
        return f"o{value.offset}s{'x'.join(map(str, value.sizes))}t{'x'.join(map(str, value.strides))}"
    if isinstance(value, tuple) and value and isinstance(value[0], Pattern):
        return f"{len(value)}{hashlib.sha256(repr(value).encode()).hexdigest()[:8]}"
    if isinstance(value, tuple):
        return "x".join(map(str, value))
    return str(getattr(value, "name", value))


def label(op: Any) -> str:
    """Class, then every shown field as `<field><value>`, joined by underscores."""
    parts = [f"{k}{shown(getattr(op, k))}" for k, f in op.fields.items() if f.repr and getattr(op, k) is not None]
    return "_".join([type(op).__name__, *parts])
