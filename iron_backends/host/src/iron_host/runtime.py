"""Calling the native run loop: one call per graph call, one per loop, call-backs in between.

The thread pool belongs to a `Runtime`; there is one per thread count in a process. Python objects reach
native code only as addresses of the arrays in `RunArrays`, which the caller keeps alive.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from iron_host import build
from iron_host.memory import address
from iron_host.runlist import RunArrays, StepArrays
from iron_host.timing import Timing

#: int32 (*)(int64 step or index): nonzero stops the run.
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64)


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
    )


class Runtime:
    """The native run loop with a pool of `threads` threads, the calling one included."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._library = build.runtime()
        self._lock = threading.RLock()
        self._pool: Any = None
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
        """Every step once, then the carried values' next numbers. What a call-back raises is raised here."""
        with self._lock:
            if on_callback is None:
                self._library.iron_call(self._live_pool(), ctypes.byref(run), None)
            else:
                with _Guard() as guard:
                    self._library.iron_call(self._live_pool(), ctypes.byref(run), guard.wrap(on_callback))

    def loop(
        self,
        run: Run,
        steps: int,
        on_callback: Callable[[int], None] | None,
        on_step: Callable[[int], bool] | None,
    ) -> int:
        """Up to `steps` runs in one native call. `on_step(index)` after each; True stops. Returns the runs made."""
        with self._lock, _Guard() as guard:
            callback = guard.wrap(on_callback) if on_callback is not None else None
            after = guard.wrap(on_step) if on_step is not None else None
            return int(self._library.iron_loop(self._live_pool(), ctypes.byref(run), steps, callback, after))

    @contextlib.contextmanager
    def timed(self) -> Iterator[Timing]:
        """The pool's runs while the block is open, in tables that are gone after it."""
        timing = Timing(self._library, self.threads)
        with self._lock:
            self._library.iron_time(self._live_pool(), timing.handle)
        try:
            yield timing
        finally:
            with self._lock:
                self._library.iron_time(self._live_pool(), None)
                timing.close()

    def _live_pool(self) -> Any:
        # A forked child has none of its parent's threads, so it makes a pool of its own.
        if self._pid != os.getpid():
            self._pool = ctypes.c_void_p(self._library.iron_pool_create(self.threads))
            self._pid = os.getpid()
        return self._pool


class _Guard:
    """Keeps exceptions from crossing native code: what a call-back raises ends the native call and is raised after it.

    Ctrl-C too: a handler that raises would do so on the way into a call-back, where nothing can catch it, so on the main
    thread the signal is noted, ends the native call at its next call-back, and reaches its own handler afterwards.
    """

    def __init__(self) -> None:
        self._error: BaseException | None = None
        self._keep: list[Any] = []
        self._handler: Any = None
        self._interrupted = False

    def wrap(self, function: Callable[[int], Any]) -> Any:
        """`function` as a native call-back; it returns 1 to stop."""

        def guarded(index: int) -> int:
            try:
                stop = function(index)
            except BaseException as error:
                self._error = error
                return 1
            return 1 if stop or self._interrupted else 0

        wrapped = CALLBACK(guarded)
        self._keep.append(wrapped)
        return wrapped

    def __enter__(self) -> _Guard:
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler) and threading.current_thread() is threading.main_thread():
            self._handler = handler
            signal.signal(signal.SIGINT, self._note)
        return self

    def _note(self, number: int, frame: Any) -> None:
        self._interrupted = True

    def __exit__(self, *_: object) -> None:
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)
            if self._interrupted:
                self._handler(signal.SIGINT, None)
        if self._error is not None:
            raise self._error


@cache
def runtime(threads: int) -> Runtime:
    """The process's runtime of this many threads."""
    return Runtime(threads)
