"""Calling the native run loop: it comes back where Python is wanted, and goes on from there.

No exception meets native code: steps without a kernel, and what follows every pass of a loop, run between two native
calls. On the main thread the loop comes back every PAUSE_NS too, so that Python runs the handlers of signals; what one
raises ends the run and arrives at its caller.

The thread pool belongs to a `Runtime`; there is one per thread count in a process. Python objects reach
native code only as addresses of the arrays in `RunArrays`, which the caller keeps alive.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from functools import cache
from threading import get_ident
from typing import Any

from iron_host import build
from iron_host.memory import address
from iron_host.runlist import RunArrays, StepArrays
from iron_host.timing import Timing

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


class Runtime:
    """The native run loop with a pool of `threads` threads, the calling one included."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._library = build.runtime()
        self._lock = threading.RLock()
        self._idle: list[Any] = []
        self._pid = -1

    def prepare(self, arrays: RunArrays | StepArrays, steps: int, values: int, carries: int) -> Run:
        """The `iron_run` over these arrays, which must outlive it."""
        return Run(
            address(arrays.steps),
            steps,
            address(arrays.bindings),
            address(arrays.values),
            values,
            address(arrays.carries),
            carries,
        )

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
        with self._lock:
            pool = self._take()
            try:
                pause = PAUSE_NS if get_ident() == threading.main_thread().ident else 0
                why = self._library.iron_begin(pool, ctypes.byref(run), steps, on_step is not None, pause)
                while why != DONE:
                    if why == ASKS:
                        assert on_callback is not None, "a step without a kernel needs a call-back"
                        on_callback(run.called)
                    elif why == PASSED:
                        assert on_step is not None
                        made = run.made
                        stop = on_step(made - 1)
                        run.passes, run.each, run.pause_ns, run.made, run.step = steps, True, pause, made, 0
                        if stop:
                            return True
                    elif why == UNFIT:
                        return False
                    why = self._library.iron_go_on(pool, ctypes.byref(run))
                return True
            finally:
                self._idle.append(pool)

    @contextlib.contextmanager
    def timed(self) -> Iterator[Timing]:
        """The pool's runs while the block is open, in tables that are gone after it."""
        timing = Timing(self._library, self.threads)
        with self._lock:
            pool = self._take()
            self._library.iron_time(pool, timing.handle)
            self._idle.append(pool)
        try:
            yield timing
        finally:
            with self._lock:
                self._library.iron_time(pool, None)
                timing.close()

    def _take(self) -> Any:
        """A pool that nothing runs on. What runs while another run stands half-way, in a call-back or a signal's handler, has
        one of its own: the other's goes on with what its shared area holds."""
        if self._pid != os.getpid():  # a forked child has none of its parent's threads
            self._idle, self._pid = [], os.getpid()
        return self._idle.pop() if self._idle else ctypes.c_void_p(self._library.iron_pool_create(self.threads))


@cache
def runtime(threads: int) -> Runtime:
    """The process's runtime of this many threads."""
    return Runtime(threads)
