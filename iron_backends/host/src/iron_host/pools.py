"""`Pools`: the native thread pools of one thread count. A run takes one for itself, so nobody waits for another's run.

A pool that is given back is kept for the next run. More than one are kept only while that many are needed at once and
the threads that made them live; the last one goes with the last executable of its thread count. A forked child has none
of its parent's threads: it begins with no idle pool, and a run that it is inside of goes on with the one thread there is.
"""

from __future__ import annotations

import atexit
import os
import threading
import warnings
from typing import Any
from weakref import WeakSet, ref

from iron_core.errors import OutOfMemory

#: Runs after which pools that none of them needed are given up.
RUNS = 100

_pools: WeakSet[Pool] = WeakSet()
_counts: WeakSet[Pools] = WeakSet()


class Pool:
    """One native pool; its threads and memory go with this object."""

    handle: Any = None  # until it is made: a signal's handler may come before

    def __init__(self, library: Any, threads: int) -> None:
        self._library, self._pid = library, os.getpid()
        self.handle = library.iron_pool_create(threads)
        if not self.handle:
            raise OutOfMemory(f"host: no memory for a pool of {threads} threads.", "a pool of threads")
        #: Threads there are: fewer than were asked for where the system gave no more.
        self.threads = int(library.iron_pool_threads(self.handle))
        #: Has it all its threads, and is the thread that made it gone?
        self.whole, self.left = self.threads == threads, False
        #: Bytes of the area of all threads, and of each one's.
        self.shared = self.scratch = 0
        #: The `Timing` that its run is recorded in.
        self.timing: Any = None
        _pools.add(self)

    def reserve(self, shared: int, scratch: int) -> None:
        """Areas of at least so many bytes. After OutOfMemory there are none, until the next run asks for what it needs."""
        self.shared, self.scratch = max(shared, self.shared), max(scratch, self.scratch)
        refused = int(self._library.iron_pool_reserve(self.handle, self.shared, self.scratch))
        if refused:
            self.shared = self.scratch = 0
            raise OutOfMemory(
                f"host: no memory for what a step's threads work in ({refused} bytes for {self.threads}).", "a step's threads", refused
            )

    def forked(self) -> None:
        """In a child, the calling thread is the only one it has."""
        self._library.iron_pool_forked(self.handle)
        self._pid, self.whole = os.getpid(), False

    def __del__(self) -> None:
        if self.handle:
            if self._pid != os.getpid():
                self._library.iron_pool_forked(self.handle)
            self._library.iron_pool_free(self.handle)


class Pools:
    """Pools of `threads` threads: `take()` one, `give()` it back. One that is not given back goes with whoever has it."""

    def __init__(self, library: Any, threads: int) -> None:
        self.threads = threads
        self._library = library
        self._idle: list[Pool] = []  # the last one given is taken first, so that it shows which are not needed
        self._mine = threading.local()
        self._runs = self._unneeded = 0
        _counts.add(self)

    def take(self) -> Pool:
        """A pool that no other run has."""
        try:
            return self._idle.pop()
        except IndexError:
            return self._make()

    def give(self, pool: Pool) -> None:
        """Keep a pool for the next run, where it is of use."""
        if not pool.whole:
            return
        if self._idle:
            if pool.left:
                return
            self._thin()
        self._idle.append(pool)

    def close(self) -> None:
        """Let the idle ones go."""
        self._idle.clear()

    def _make(self) -> Pool:
        pool = Pool(self._library, self.threads)
        if not pool.whole:
            warnings.warn(f"iron: host: threads={self.threads}, and the system starts only {pool.threads} now.", stacklevel=2)
        self._mine.__dict__.setdefault("makers", []).append(_Maker(self, pool))
        return pool

    def _thin(self) -> None:
        """Before one more is idle: drop one whose thread is gone, and, now and then, what the last runs did not need."""
        if self._idle[0].left:
            del self._idle[:1]
        self._unneeded = min(self._unneeded, len(self._idle)) if self._runs else len(self._idle)
        self._runs += 1
        if self._runs >= RUNS:
            self._runs = 0
            del self._idle[: self._unneeded]

    def leave(self, pool: Pool) -> None:
        """The thread that made a pool has ended."""
        pool.left = True
        if len(self._idle) > 1 and pool in self._idle:
            self._idle.remove(pool)


class _Maker:
    """Lives as long as the thread that made a pool does."""

    _pools: Any = staticmethod(lambda: None)
    _pool: Any = _pools  # of one that a signal's handler kept from being made

    def __init__(self, pools: Pools, pool: Pool) -> None:
        self._pools, self._pool = ref(pools), ref(pool)

    def __del__(self) -> None:
        pools, pool = self._pools(), self._pool()
        if pools is not None and pool is not None:
            pools.leave(pool)


def _close() -> None:
    for pools in list(_counts):
        pools.close()


def _in_child() -> None:
    _close()
    for pool in list(_pools):
        pool.forked()


atexit.register(_close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
