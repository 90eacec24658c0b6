"""`undeclared`: a method that a base class leaves to those of its subclasses that have one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])


def undeclared(method: _F) -> _F:
    """Mark a base's method that only raises: a subclass that does not override it declares none."""
    method.undeclared = True  # type: ignore[attr-defined]
    return method


def is_undeclared(method: Any) -> bool:
    """Is this a method so marked?"""
    return getattr(method, "undeclared", False)
