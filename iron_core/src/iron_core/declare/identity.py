"""Which operators are the same: the keys of contract, array and design, and an operator's label."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from iron_core.declare.field import AutoField
from iron_core.declare.link import CHAINS, Link
from iron_core.declare.pattern import Pattern
from iron_core.declare.rules import require_operator


def canonical(value: Any) -> Any:
    """A field's value as hashable data that prints alike in every process."""
    if isinstance(value, np.dtype):
        return value.name
    if isinstance(value, type) and issubclass(value, np.generic):
        return np.dtype(value).name
    if isinstance(value, (list, tuple)):
        return tuple(canonical(v) for v in value)
    return value


def class_name(op: Any) -> str:
    """The full name of a plain operator's class. CallError for what is no operator."""
    require_operator(op, "the key")
    cls = type(op.base)
    return f"{cls.__module__}.{cls.__qualname__}"


def field_pairs(op: Any, *, array: bool = False) -> tuple[tuple[str, Any], ...]:
    """Params, dtypes and formats; array: those of the array tier alone."""
    names = (k for k, f in op.fields.items() if not isinstance(f, AutoField) and (not array or k in op.array_tier))
    return tuple((k, canonical(getattr(op, k))) for k in names)


def _chains(op: Any, *, array: bool = False) -> tuple[Any, ...]:
    """What the steps folded into an operator add to a key: nothing where there are none, and to the array's nothing of their
    extents."""
    return tuple((chain, tuple(_link(link, array) for link in getattr(op, chain))) for chain in CHAINS if getattr(op, chain))


def _link(link: Link, array: bool) -> tuple[Any, ...]:
    return (class_name(link.op), field_pairs(link.op, array=array), link.position)


def contract_key(op: Any) -> tuple[Any, ...]:
    """Class, params, dtypes and formats."""
    return (class_name(op), field_pairs(op), *_chains(op))


def array_key(op: Any) -> tuple[Any, ...]:
    """Class and array-tier fields of a resolved operator."""
    return (class_name(op), tuple((k, canonical(getattr(op, k))) for k in op.fields if k in op.array_tier), *_chains(op, array=True))


def design_key(op: Any) -> tuple[Any, ...]:
    """Class and every field of a resolved operator, and the tensors that its outputs are placed in."""
    placed = (("placed", *op.placed),) if op.placed else ()
    return (class_name(op), tuple((k, canonical(getattr(op, k))) for k in op.fields), *_chains(op), *placed)


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
    require_operator(op, "the label")
    parts = [f"{k}{shown(getattr(op, k))}" for k, f in op.fields.items() if f.repr and getattr(op, k) is not None]
    for chain, keys in _chains(op):
        parts.append(f"{chain}{hashlib.sha256(repr(keys).encode()).hexdigest()[:8]}")
    parts += [f"placed{operand}{elements}" for operand, elements in op.placed]
    return "_".join([type(op.base).__name__, *parts])
