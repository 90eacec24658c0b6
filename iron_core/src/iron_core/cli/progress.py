"""Signs of life during long work: on a terminal, and nothing in a pipe."""

from __future__ import annotations

import os
import sys
import time
from _thread import start_new_thread
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue

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
    # Not a Thread and an Event: Ctrl-C within their code would leave a lock taken that the thread waits for.
    done: SimpleQueue[None] = SimpleQueue()
    gone: SimpleQueue[None] = SimpleQueue()
    start = time.monotonic()

    def show() -> None:
        shown = False
        try:
            while not _told(done, _EVERY_S):
                words = what if isinstance(what, str) else what()
                stream.write(f"\r{words}, {time.monotonic() - start:.0f} s\033[K")
                stream.flush()
                shown = True
            if shown:
                stream.write("\r\033[K")
                stream.flush()
        finally:
            gone.put(None)

    try:
        start_new_thread(show, ())
        yield
    finally:
        done.put(None)
        gone.get()


def _told(queue: SimpleQueue[None], wait: float) -> bool:
    try:
        queue.get(timeout=wait)
    except Empty:
        return False
    return True
