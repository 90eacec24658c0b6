"""The trace in progress."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

#: The `Tracer` whose body runs in this context.
CURRENT: ContextVar[Any] = ContextVar("iron_tracer", default=None)


def current() -> Any:
    """The trace in progress (a `Tracer`), or None."""
    return CURRENT.get()
