"""Calling the native run loop: it comes back where Python is wanted, and goes on from there.

No exception meets native code: steps without a kernel, and what follows every pass of a loop, run between two native
calls. On the main thread the loop comes back every PAUSE_NS too, so that Python runs the handlers of signals; what one
raises ends the run and arrives at its caller.

There is one `Runtime` per thread count in a process, while something needs it; every run has a thread pool of its own.
Python objects reach native code only as addresses of the arrays in `RunArrays`, which the caller keeps alive.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Callable, Iterator
from threading import get_ident
from weakref import WeakValueDictionary

from iron_core.errors import CallError
from iron_core.turn import Turn
from iron_host import build
from iron_host.anonymous import address
from iron_host.pools import Pool, Pools
from iron_host.runlist import RunArrays, StepArrays
from iron_host.timing import Tables

#: How often a run on the main thread comes back to Python. A pass is ended half-way only after twice that.
PAUSE_NS = 50_000_000

#: `IRON_DONE` and so on, of iron_host.h.
DONE, ASKS, PASSED, PAUSES, UNFIT = range(5)


class Run(ctypes.Structure):
    """`iron_run` of iron_host.h."""

    _fields_ = (
        ("steps", ctypes.c_void_p),
        ("n_steps", ctypes.c_int64),
        ("bindings", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
        ("n_values", ctypes.c_int64),
        ("carries", ctypes.c_void_p),
        ("n_carries", ctypes.c_int64),
        *((name, ctypes.c_int64) for name in ("passes", "each", "pause_ns", "made", "step", "began", "called", "row", "begun")),
    )
    #: The most bytes that a step's threads need to share, and each for itself.
    areas: tuple[int, int]


class Runtime:
    """The native run loop with a pool of `threads` threads, the calling one included."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._library = build.runtime()
        self._pools = Pools(self._library, threads)
        self._tables: Tables | None = None

    def prepare(self, arrays: RunArrays | StepArrays, steps: int, values: int, carries: int) -> Run:
        """The `iron_run` over these arrays, which must outlive it."""
        run = Run(
            address(arrays.steps),
            steps,
            address(arrays.bindings),
            address(arrays.values),
            values,
            address(arrays.carries),
            carries,
        )
        run.areas = int(arrays.steps["shared_bytes"].max()), int(arrays.steps["scratch_bytes"].max())
        return run

    def run(self, run: Run, on_callback: Callable[[int], None] | None) -> None:
        """Every step once, then the carried values' next numbers. `on_callback(i)` computes step i, which has no kernel."""
        self.loop(run, 1, on_callback, None)

    def loop(
        self,
        run: Run,
        steps: int,
        on_callback: Callable[[int], None] | None,
        on_step: Callable[[int], bool] | None,
    ) -> bool:
        """Up to `steps` runs; the number made is `run.made`. `on_step(index)` after each; True stops.

        False where a carried value left its range, so that the next run was not begun. What a call-back or a signal's handler
        raises is raised here. A handler's ends a loop between two runs, or, one that takes long, between two of its steps.
        """
        pool = self._take(run)
        try:
            handle, place, go_on, made = pool.handle, ctypes.byref(run), self._library.iron_go_on, 0
            pause = PAUSE_NS if get_ident() == threading.main_thread().ident else 0
            why = self._library.iron_begin(handle, place, steps, on_step is not None, pause)
            while why != DONE:
                if why == PASSED:
                    assert on_step is not None
                    if on_step(made):
                        return True
                    made += 1
                elif why == ASKS:
                    assert on_callback is not None, "a step without a kernel needs a call-back"
                    on_callback(run.called)
                elif why == UNFIT:
                    return False
                why = go_on(handle, place)
            return True
        finally:
            self._give(pool)

    @contextlib.contextmanager
    def timed(self) -> Iterator[Tables]:
        """What runs that begin while the block is open take, in tables that are gone after it. CallError inside another such."""
        tables = Tables(self._library, self.threads)
        if self._tables is not None:
            raise CallError(f"runs on {self.threads} threads are being recorded already; one recording at a time.")
        self._tables = tables
        try:
            yield tables
        finally:
            self._tables = None
            tables.close()

    def _take(self, run: Run) -> Pool:
        """A pool for a run, with areas as large as its steps ask for.

        What runs while this run stands half-way, in a call-back or a signal's handler, has another.
        """
        pool = self._pools.take()
        shared, scratch = run.areas
        if shared > pool.shared or scratch > pool.scratch:
            pool.reserve(shared, scratch)
        if self._tables is not None:
            self._tables.attach(pool)
        return pool

    def _give(self, pool: Pool) -> None:
        if pool.timing is not None:
            pool.timing.detach(pool)
        self._pools.give(pool)


_runtimes: WeakValueDictionary[int, Runtime] = WeakValueDictionary()
_making = Turn("making runtimes")


def runtime(threads: int) -> Runtime:
    """The process's runtime of this many threads; its pools are freed when nobody holds it any more."""
    with _making:
        found = _runtimes.get(threads)
        if found is None:
            found = _runtimes[threads] = Runtime(threads)
        return found
