"""Rules that operators hold their fields to: `Unresolvable` in one sentence where one is broken, with what would be legal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from iron_core.errors import CallError, Unresolvable


def nearest(value: int, legal: int | Iterable[int]) -> str:
    """The legal values on both sides of one that is not, in words: "96 or 128".

    legal: the values, or a step, whose multiples from itself on are meant.
    """
    if isinstance(legal, int):
        below, above = value // legal * legal, max(legal, -(-value // legal) * legal)
        return str(above) if below < 1 or below == above else f"{below} or {above}"
    known = sorted(legal)
    sides = [n for n in known if n < value][-1:] + [n for n in known if n > value][:1]
    return " or ".join(map(str, sides))


def require(holds: Any, sentence: str) -> None:
    """Unresolvable unless it holds. sentence: operator and keyword, the rule, the value, what would be legal."""
    if not holds:
        raise Unresolvable(sentence)


def require_operator(op: Any, where: str) -> None:
    """CallError for what is no instance of an operator. where: what was called, in words: "fold()"."""
    if isinstance(op, type) or not hasattr(op, "base") or not hasattr(op, "array_tier"):
        shown = op.__name__ if isinstance(op, type) else repr(op)
        raise CallError(f"{where} of {shown}; legal: an operator with its fields, as SiLU(size=64).")


def require_npu(op: Any, dev: Any) -> None:
    """Unresolvable for a device without an array."""
    if dev is None or not dev.is_npu:
        raise Unresolvable(f"{type(op).__name__}: dev={dev} has no array. Legal: npu1, npu2 and their column variants.")


def require_channels(op: Any) -> None:
    """Unresolvable unless num_channels is 1 or 2: the channels that a column's shim has each way."""
    if op.num_channels not in (1, 2):
        raise Unresolvable(f"{type(op).__name__}: num_channels={op.num_channels}; a column has 2 channels. Legal: 1, 2.")


def require_columns(op: Any, dev: Any) -> None:
    """Unresolvable where num_aie_columns is more than a device has. dev: None where any is meant."""
    if dev is not None and dev.is_npu and op.num_aie_columns > dev.columns:
        most, name = dev.columns, type(op).__name__
        raise Unresolvable(f"{name}: num_aie_columns={op.num_aie_columns}; {dev} has {most}. Legal: num_aie_columns={most}.")


def require_dtype(op: Any, dtype: Any, *fields: str) -> None:
    """Unresolvable unless these dtype fields are what the operator's array computes on."""
    for field in fields:
        have, name = getattr(op, field), np.dtype(dtype).name
        if have != dtype:
            raise Unresolvable(
                f"{type(op).__name__}: {field}={getattr(have, 'name', have)}; its array computes on {name}. "
                f"Legal: {'='.join(fields)}={name}."
            )


def require_whole(op: Any, field: str, unit: int, what: str, instead: str = "") -> None:
    """Unresolvable unless a field is a multiple of `unit`. what: the units, in words; instead: further ways out, "give x="."""
    have = getattr(op, field)
    if have % unit:
        raise Unresolvable(
            f"{type(op).__name__}: {field}={have} is not whole {what}, {unit} in all. Nearest legal {field}: {nearest(have, unit)}"
            f"{f'; or {instead}' if instead else ''}."
        )
