"""Where threads meet in the host tests: call-back steps that tests look into, and functions on threads of their own.

Nothing depends on who is faster. What must happen is waited for; what must not is looked for a little while, so that a
fault shows and its absence never fails.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

import iron_core as iron
from iron_ops_aie import ElementwiseAdd, SiLU

#: Seconds: what ends a hang, and how long to look for what must not happen.
HANG, LOOK = 60, 0.15

#: Called by every `Peek` while it runs.
looks: list[Callable[[], None]] = []


class Peek(iron.UnaryElementwise):
    """y = x, by a call-back in which `looks` are called."""

    def reference(self, x: Any) -> Any:
        for look in list(looks):
            look()
        return np.asarray(x)


class Peeking(iron.Graph):
    """silu(x) + peek(x + x): an intermediate result lives across the call-back."""

    def body(self, x: Any) -> Any:
        a = SiLU(x)
        return ElementwiseAdd(a, Peek(ElementwiseAdd(x, x)))


class Aside:
    """A function on a thread of its own. `result` is what it returned, or raised."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.result: Any = None
        begun = threading.Event()

        def run() -> None:
            begun.set()
            try:
                self.result = function()
            except Exception as error:
                self.result = error

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()
        assert begun.wait(HANG)

    @property
    def ident(self) -> int | None:
        return self._thread.ident

    def waits(self) -> bool:
        """Is it still at it after a little while?"""
        self._thread.join(LOOK)
        return self._thread.is_alive()

    def end(self) -> Any:
        """What it returned, or raised, once it is over."""
        self._thread.join(HANG)
        assert not self._thread.is_alive(), "it hangs"
        return self.result


class Held(Aside):
    """A call on a thread of its own that stands in its first call-back until `go()`."""

    def __init__(self, call: Callable[[], Any]) -> None:
        inside, self._gate = threading.Event(), threading.Event()

        def wait() -> None:
            if threading.get_ident() == self.ident and not inside.is_set():
                inside.set()
                assert self._gate.wait(HANG)

        looks.append(wait)
        super().__init__(call)
        assert inside.wait(HANG)

    def go(self) -> Any:
        self._gate.set()
        return self.end()
