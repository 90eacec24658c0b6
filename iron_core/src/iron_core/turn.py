"""`Turn`: a lock for what threads share, that neither a fork, a signal's exception nor a circle of call-backs leaves hanging."""

from __future__ import annotations

import importlib
import os
import sys
import threading
from threading import get_ident
from typing import Any
from weakref import WeakSet

from iron_core.errors import CallError

#: Seconds between two looks at who waits for whom.
_LOOK = 0.05

_turns: WeakSet[Turn] = WeakSet()
#: Thread -> the turn it waits for.
_waiting: dict[int, Turn] = {}

# A class of Python's would release in Python code, where a signal's handler may raise first and leave it taken for ever.
_RLock: Any = type(threading.RLock())


class Turn(_RLock):
    """`with turn:` is one thread's turn on what `name` says; others wait. The same thread may take it again inside.

    CallError instead of waiting where that would never end: every thread of a circle has what the next one waits for, as
    when call-backs of two graphs call one another's graph. A forked child finds it free, unless the forking thread has it.
    """

    #: For who has the turn: it is in the middle of something. A forked child begins without.
    busy = False

    def __new__(cls, name: str) -> Turn:
        return super().__new__(cls)

    def __init__(self, name: str) -> None:
        self.name = name
        self._owner = 0  # the thread that took it last
        _turns.add(self)

    def __enter__(self) -> Turn:
        mine = self._is_owned()
        try:
            if not self.acquire(False):
                self._wait()
            self._owner = get_ident()
        except BaseException:  # of a signal's handler too, which may run just after the lock was taken
            if not mine and self._is_owned():
                self.release()
            raise
        return self

    def _wait(self) -> None:
        me = get_ident()
        before: list[int] = []
        _waiting[me] = self
        try:
            while not self.acquire(timeout=_LOOK):
                circle = self._circle(me)
                # Seen twice, so that it is no half of a change; and only one of the circle gives way.
                if circle and circle == before and me == max(circle):
                    raise CallError(
                        f"{self.name} is in a call on another thread, which waits for one on this thread to end: each was called "
                        "inside the other. Call one of the two outside the other's call-backs."
                    )
                before = circle
        finally:
            _waiting.pop(me, None)

    def _circle(self, me: int) -> list[int]:
        """The threads that wait for one another, from this one on; empty where no wait leads back to it."""
        found, turn = [me], _waiting.get(me)
        while turn is not None:
            owner = turn._owner
            if owner == me:
                return found
            if owner in found:
                return []
            found.append(owner)
            turn = _waiting.get(owner)
        return []


def _in_child() -> None:
    """What a forked child's other threads had, nobody has."""
    _waiting.clear()
    for turn in list(_turns):
        if not turn._is_owned():
            turn._at_fork_reinit()
            turn.busy = False
    _import_again()


def _import_again() -> None:
    """Modules that other threads were importing are imported from their beginning: Python keeps their locks taken for ever."""
    locks: dict[str, Any] = getattr(importlib._bootstrap, "_module_locks", {})
    for name, ref in list(locks.items()):
        owner = getattr(ref(), "owner", None)
        if owner is not None and owner != get_ident():
            locks.pop(name, None)
            spec = getattr(sys.modules.get(name), "__spec__", None)
            if getattr(spec, "_initializing", False):
                del sys.modules[name]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
