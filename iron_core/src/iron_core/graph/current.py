"""The trace in progress."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from iron_core.errors import TraceError

#: The `Tracer` whose body runs in this context.
CURRENT: ContextVar[Any] = ContextVar("iron_tracer", default=None)


def current() -> Any:
    """The trace in progress (a `Tracer`), or None."""
    return CURRENT.get()


@contextmanager
def category(name: str) -> Iterator[None]:
    """Count the steps that a body traces inside under `name` in profiles of its runs, as `Graph.category` does all of a graph's.
    TraceError outside a body."""
    tracer = current()
    if tracer is None:
        raise TraceError(f"category({name!r}) outside a body. Legal: in the body of a graph, around its calls.")
    with tracer.labelled(name):
        yield
