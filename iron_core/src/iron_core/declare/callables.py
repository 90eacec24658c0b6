"""What an author's function takes, asked before it is called."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def signature(function: Any) -> inspect.Signature | None:
    """Its signature; None of what has none to read, as some functions written in C."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def takes(function: Callable[..., Any], *counts: int) -> bool:
    """Can it be called with one of these counts of arguments by position? True of what cannot be told."""
    known = signature(function)
    return known is None or any(binds(known, count) for count in counts)


def binds(known: inspect.Signature, count: int, *keywords: str) -> bool:
    """Does a signature take so many arguments by position, and these by keyword?"""
    try:
        known.bind(*range(count), **dict.fromkeys(keywords))
    except TypeError:
        return False
    return True


def spelled(value: Any) -> str:
    """A value in a message: a function by its name, anything else as it prints."""
    if inspect.isfunction(value):
        return "a lambda" if value.__name__ == "<lambda>" else f"{value.__name__}{inspect.signature(value)}"
    return repr(value)
