"""Signs of life during long work: on a terminal, and nothing in a pipe."""

from __future__ import annotations

import os
import sys
import time
from _thread import start_new_thread
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue

from iron_core.cli.status_line import status_line

_EVERY_S = 0.5
#: Work under way that is shown, by when it began: several threads' and one within another share a line.
_jobs: list[tuple[float, str | Callable[[], str]]] = []


@contextmanager
def working(what: str | Callable[[], str]) -> Iterator[None]:
    """Show `what` and the seconds so far on standard error, if that is a terminal, until the block ends.

    what: words, or what gives those of the moment. What takes less than half a second shows nothing. Work that goes on meanwhile is
    shown beside it; what is printed meanwhile stands above.
    """
    stream = sys.stderr
    if stream is None or not stream.isatty() or os.environ.get("TERM") == "dumb":
        yield
        return
    # Not a Thread and an Event: Ctrl-C within their code would leave a lock taken that the thread waits for.
    done: SimpleQueue[None] = SimpleQueue()
    gone: SimpleQueue[None] = SimpleQueue()
    job = (time.monotonic(), what)

    def show() -> None:
        _jobs.append(job)
        try:
            while not _told(done, _EVERY_S):
                if _jobs[-1] is job:  # the last to begin shows all
                    status_line.show(stream, " · ".join(map(_words, _jobs)))
        finally:
            _jobs.remove(job)
            status_line.clear(stream)
            gone.put(None)

    try:
        start_new_thread(show, ())
        yield
    finally:
        done.put(None)
        gone.get()


def _words(job: tuple[float, str | Callable[[], str]]) -> str:
    start, what = job
    return f"{what if isinstance(what, str) else what()}, {time.monotonic() - start:.0f} s"


def _told(queue: SimpleQueue[None], wait: float) -> bool:
    try:
        queue.get(timeout=wait)
    except Empty:
        return False
    return True
