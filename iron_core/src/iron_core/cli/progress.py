"""Signs of life during long work: on a terminal, and nothing in a pipe."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_EVERY_S = 0.5


@contextmanager
def working(what: str | Callable[[], str]) -> Iterator[None]:
    """Show `what` and the seconds so far on standard error, if that is a terminal, until the block ends.

    what: words, or what gives those of the moment. What takes less than half a second shows nothing.
    """
    stream = sys.stderr
    if stream is None or not stream.isatty() or os.environ.get("TERM") == "dumb":
        yield
        return
    done, start = threading.Event(), time.monotonic()

    def show() -> None:
        shown = False
        while not done.wait(_EVERY_S):
            words = what if isinstance(what, str) else what()
            stream.write(f"\r{words}, {time.monotonic() - start:.0f} s\033[K")
            stream.flush()
            shown = True
        if shown:
            stream.write("\r\033[K")
            stream.flush()

    thread = threading.Thread(target=show, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
