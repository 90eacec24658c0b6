"""`aside`: words about what is done, on standard error."""

from __future__ import annotations

import sys
from contextlib import suppress


def aside(text: str) -> None:
    """Say it on standard error. Where that is closed or full it goes unsaid: it is no answer, and never among one."""
    if sys.stderr is not None:  # print() would take standard output instead
        with suppress(OSError, ValueError):
            print(text, file=sys.stderr, flush=True)
