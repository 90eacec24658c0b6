"""Work on several threads that Ctrl-C ends soon."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TypeVar

_T = TypeVar("_T")
_R = TypeVar("_R")

#: Seconds between two looks at whether a signal came: one that comes just before a wait does not end it.
_LOOK = 0.1


def side_by_side(function: Callable[[_T], _R], items: Iterable[_T], end: Callable[[], None] | None = None) -> list[_R]:
    """`function` of every item, in order, on a thread for each CPU; raises what the first that fails raised.

    What interrupts this, or fails, waits for the items that are under way, not for those that are not; `end` is called first and
    may end those too.
    """
    from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait  # here: most starts need no threads

    pool = ThreadPoolExecutor(os.cpu_count() or 1)  # it starts no more than there are items
    try:
        waiting = results = [pool.submit(function, item) for item in items]
        while waiting:
            done, left = wait(waiting, _LOOK, FIRST_EXCEPTION)
            for one in done:
                one.result()
            waiting = list(left)
        return [one.result() for one in results]
    finally:
        if end is not None:
            end()
        pool.shutdown(cancel_futures=True)
