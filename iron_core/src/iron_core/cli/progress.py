"""Signs of life during long work: on a terminal, and nothing in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show `what` with a spinner on standard error, if that is a terminal, until the block ends."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console  # only here: a third of a second nobody in a pipe should pay

    with Console(stderr=True).status(what):
        yield
