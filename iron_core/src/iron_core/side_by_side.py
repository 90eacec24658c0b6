"""Work on several threads that Ctrl-C ends soon."""

from __future__ import annotations

import os
from _thread import start_new_thread
from collections import deque
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

_T = TypeVar("_T")
_R = TypeVar("_R")

#: Seconds between two looks at whether a signal came: one that comes just before a wait does not end it.
_LOOK = 0.1


def side_by_side(
    function: Callable[[_T], _R], items: Iterable[_T], end: Callable[[], None] | None = None, at_once: int | None = None
) -> list[_R]:
    """`function` of every item, in order, on a thread for each CPU (`at_once`: on so many); raises what the first that fails raised.

    What interrupts this, or fails, waits for the items that are under way, not for those that are not; `end` is called before the
    wait and may end those too.
    """
    # Ctrl-C may come between any two steps of this thread. A lock of Python code (of a pool, an Event, a Thread that starts)
    # would be left taken, and the other threads would wait for it for ever: here are only lists and queues that C code changes.
    todo = deque(enumerate(items))
    count = len(todo)
    results: dict[int, _R] = {}
    errors: list[BaseException] = []
    ended: list[int] = []
    told: SimpleQueue[Any] = SimpleQueue()

    def work() -> None:
        while todo:
            try:
                at, item = todo.popleft()
            except IndexError:  # another thread had the last one
                return
            try:
                results[at] = function(item)
            except BaseException as error:
                errors.append(error)
            ended.append(at)
            told.put(at)

    def look() -> None:
        try:
            told.get(timeout=_LOOK)
        except Empty:
            pass

    try:
        for _ in range(min(at_once or os.cpu_count() or 1, count)):
            start_new_thread(work, ())
        while len(ended) < count and not errors:
            look()
        if errors:
            raise errors.pop(0)  # not held here as well: its traceback holds this frame
        return [results[at] for at in range(count)]
    finally:
        left = 0  # before `end`: a thread whose item it ends would take the next one
        while todo:
            try:
                todo.popleft()
                left += 1
            except IndexError:  # a thread had the last one
                pass
        if end is not None:
            end()
        while len(ended) + left < count:
            look()
