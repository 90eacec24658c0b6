"""The native tables that the run loop writes what runs take to, one set for each pool."""

from __future__ import annotations

from typing import Any

from iron_core.errors import OutOfMemory
from iron_core.turn import Turn
from iron_host.pools import Pool


class Timing:
    """The native tables of one pool of `threads` threads."""

    def __init__(self, library: Any, threads: int) -> None:
        self.native = library
        self.handle = library.iron_timing_create(threads)
        if not self.handle:
            raise OutOfMemory("host: no memory to record what runs take.", "a recording")
        #: Held by the thread whose run they record.
        self.running = Turn("a run that is recorded")

    def detach(self, pool: Pool) -> None:
        """Record no more of this pool."""
        self.native.iron_time(pool.handle, None)
        pool.timing = None
        self.running.release()

    def __del__(self) -> None:
        if self.handle:
            self.native.iron_timing_free(self.handle)


class Tables:
    """The tables of every pool that runs use while a recording is open."""

    def __init__(self, library: Any, threads: int) -> None:
        self._library, self._threads = library, threads
        self._of: dict[Pool, Timing] = {}

    def attach(self, pool: Pool) -> None:
        """Record a pool's runs until it is detached."""
        timing = self._of.get(pool)
        if timing is None:
            timing = self._of[pool] = Timing(self._library, self._threads)
        timing.running.acquire()
        pool.timing = timing
        self._library.iron_time(pool.handle, timing.handle)

    def ended(self) -> list[Timing]:
        """Every pool's, once the runs on other threads are over."""
        found = list(self._of.values())
        for timing in found:
            with timing.running:
                pass
        return found

    def close(self) -> None:
        """Give back what no run is writing to."""
        self._of.clear()
