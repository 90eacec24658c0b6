"""Shapes and indices as they are written: numbers one by one or as a tuple, -1 for what is left, an ellipsis."""

from __future__ import annotations

import math
from typing import Any


def listed(given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Dimensions or axes that were given one by one, or as one tuple or list."""
    return tuple(given[0]) if len(given) == 1 and isinstance(given[0], (tuple, list)) else given


def filled(dims: tuple[int, ...], size: int) -> tuple[int, ...]:
    """Dimensions of `size` elements, one of which may be -1: what the others leave."""
    known = -math.prod(dims)
    return tuple(size // known if n == -1 else n for n in dims) if dims.count(-1) == 1 and known > 0 else dims


def by_axis(key: Any, ndim: int) -> tuple[Any, ...]:
    """A key for every axis, or more of them: an ellipsis, and what is left out, is whole slices."""
    keys = key if isinstance(key, tuple) else (key,)
    at = next((i for i, one in enumerate(keys) if one is Ellipsis), len(keys))
    whole = [slice(None)] * (ndim - len(keys) + (at < len(keys)))
    return (*keys[:at], *whole, *keys[at + 1 :])
