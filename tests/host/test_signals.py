"""Signals while native code runs: their handlers run soon, what one raises ends the run and arrives, and nothing is broken."""

from __future__ import annotations

import gc
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import iron_core as iron
import iron_host.runtime
from iron_host.backend import HostBackend
from iron_ops_aie import GEMM, GEMV, Copy, ElementwiseAdd

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this platform has no interval timers")

#: Steps that take longer than any signal here, and longer still where Python sees each.
FOR_EVER, SEEN_FOR_EVER = 1 << 30, 1 << 22


class Counter(iron.Graph):
    """Adds one to a state, and to a number."""

    def __init__(self) -> None:
        self.one, self.total = iron.weight(np.ones(8, np.float32)), iron.state((8,), np.float32)

    def body(self, *, n: iron.Carried[np.int32]) -> Any:
        Copy(ElementwiseAdd(self.total, self.one), self.total)
        return iron.carry(n=n + 1)


class Chain(iron.Graph):
    """Products one after another; each leaves its first number in its place of a state. On one thread they take long."""

    def __init__(self, length: int, size: int) -> None:
        self.w, self.seen = iron.weight(np.eye(size, dtype=np.float32)), iron.state((length, size), np.float32)
        self.length = length

    def body(self, x: Any) -> Any:
        for i in range(self.length):
            x = GEMM(x, self.w)
            Copy(x[0], self.seen[i])
        return x


class TimeIsUp(Exception):
    pass


def _raise(*_: object) -> None:
    raise TimeIsUp


@contextmanager
def handled(number: int, handler: Callable[..., Any]) -> Iterator[None]:
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(number, before)


@pytest.fixture(autouse=True)
def no_collecting() -> Iterator[None]:
    """What a handler raises while Python collects garbage is lost in the call-backs that tools of tests put there."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def counter() -> Any:
    compiled = Counter().compile(backend=HostBackend(threads=1))
    compiled.loop(1, n=0)
    return compiled


def whole(compiled: Any) -> int:
    """Steps the state of a Counter holds: the same in every number, so none was half made."""
    (count,) = {int(number) for number in compiled.read("total")}
    return count


@pytest.mark.parametrize("on_step", [None, lambda index, carried: False])
def test_what_a_handler_raises_ends_a_loop_and_arrives(counter, on_step):
    """With a call-back and without; whole steps are made, a note says how many, and the graph goes on from there."""
    steps = FOR_EVER if on_step is None else SEEN_FOR_EVER
    with handled(signal.SIGALRM, _raise):
        for _ in range(20):
            counter.write("total", np.zeros(8, np.float32))  # a float32 counts to 2^24, fewer than 20 loops may make
            signal.setitimer(signal.ITIMER_REAL, 0.005)
            with pytest.raises(TimeIsUp) as error:
                counter.loop(steps, on_step, n=0)
            made = whole(counter)
            said = getattr(error.value, "__notes__", ["The loop was ended after 0"])  # not where it had not begun
            assert said[0].startswith(f"The loop was ended after {made} of {steps} steps." if made else "The loop was ended after 0")
    assert counter.loop(3, on_step, n=0) == dict(n=3) and whole(counter) == made + 3


@pytest.mark.parametrize(
    ("number", "handler", "kind"),
    [
        (signal.SIGINT, signal.default_int_handler, KeyboardInterrupt),
        (signal.SIGTERM, lambda *_: exit(3), SystemExit),
        (signal.SIGUSR1, _raise, TimeIsUp),
    ],
)
@pytest.mark.parametrize("when", ["in the call-back", "from outside"])
def test_any_signal_does(counter, number, handler, kind, when):
    """Ctrl-C, an exit on SIGTERM, one's own."""
    with handled(number, handler):
        timer = threading.Timer(0.02, lambda: signal.pthread_kill(threading.main_thread().ident, number))

        def on_step(index: int, carried: dict[str, int]) -> bool:
            if index == 2:
                signal.raise_signal(number)
            return False

        if when == "from outside":
            timer.start()
        with pytest.raises(kind):
            counter.loop(*((SEEN_FOR_EVER, on_step) if when == "in the call-back" else (FOR_EVER,)), n=0)
    assert counter.loop(2, n=5) == dict(n=7)


def test_a_call_that_takes_long_ends_between_two_steps(monkeypatch):
    """The steps before are done and those after are not; the next call is a whole one."""
    monkeypatch.setattr(iron_host.runtime, "PAUSE_NS", 1_000_000)  # what is long does not depend on the machine
    graph = Chain(400, 256)
    compiled = graph.compile(backend=HostBackend(threads=1), x=((256, 256), np.float32))
    x = np.ones((256, 256), np.float32)
    compiled.load()
    for _ in range(100):  # on a busy machine an alarm may come before the first step, or after the last
        with handled(signal.SIGALRM, _raise), pytest.raises(TimeIsUp):
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            while True:  # on a fast one many calls fit before it
                compiled.write("seen", np.zeros((400, 256), np.float32))
                compiled(x)
        rows = compiled.read("seen").any(1)
        assert not np.diff(rows.astype(int)).clip(0).any()
        if rows.any() and not rows.all():
            break
    assert rows[0] and not rows[-1]
    assert (compiled(x) == 1).all() and compiled.read("seen").all()


def test_handlers_that_return_change_nothing(counter):
    """However many run, in loops and in calls, even at every pause there is."""
    calls = [0]

    def handler(*_: object) -> None:
        calls[0] += 1

    graph = Chain(20, 64)
    compiled = graph.compile(backend=HostBackend(threads=2), x=((64, 64), np.float32))
    x = np.arange(4096, dtype=np.float32).reshape(64, 64)
    want = np.array(compiled(x))
    with handled(signal.SIGALRM, handler), pytest.MonkeyPatch.context() as patch:
        patch.setattr(iron_host.runtime, "PAUSE_NS", 1)
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        before, steps = whole(counter), 0
        while calls[0] < 50:
            assert counter.loop(1000, n=0) == dict(n=1000)
            assert np.array_equal(compiled(x), want)
            steps += 1000
        assert whole(counter) == before + steps


def test_what_a_handler_runs_is_apart_from_what_it_interrupts():
    """A handler may use another graph, which rounds its own activations, in the middle of a call."""
    from iron_core.declare.formats import Q8_0

    class Products(iron.Graph):
        """Many products of one tensor, which is rounded once for all of them."""

        def __init__(self, seed: int) -> None:
            rng = np.random.default_rng(seed)
            self.w = [iron.weight(Q8_0.quantize(rng.standard_normal((256, 512)).astype(np.float32))) for _ in range(24)]

        def body(self, x: Any) -> Any:
            return tuple(GEMV(w, x, activations="int8_block") for w in self.w)

    x, y = (np.random.default_rng(k).standard_normal(512).astype(np.float32) for k in (8, 9))
    one, two = (Products(k).compile(backend=HostBackend(threads=1), x=((512,), np.float32)) for k in (1, 2))
    want, other = one(x), two(y)
    inside: list[bool] = []

    def handler(*_: object) -> None:
        inside.append(all(np.array_equal(a, b) for a, b in zip(two(y), other, strict=True)))
        signal.setitimer(signal.ITIMER_REAL, 0.002)  # the next one when this is over

    with handled(signal.SIGALRM, handler), pytest.MonkeyPatch.context() as patch:
        patch.setattr(iron_host.runtime, "PAUSE_NS", 1)
        signal.setitimer(signal.ITIMER_REAL, 0.002)
        while len(inside) < 30:
            assert all(np.array_equal(a, b) for a, b in zip(one(x), want, strict=True))
    assert all(inside)


def test_other_threads_are_left_alone(counter):
    """A loop on another thread goes on to its end while the main thread is interrupted."""
    found: list[Any] = []
    go_on = threading.Event()

    def work() -> None:
        found.append(counter.loop(FOR_EVER, lambda index, carried: go_on.is_set(), n=0))

    thread = threading.Thread(target=work)
    with handled(signal.SIGALRM, _raise):
        thread.start()
        with pytest.raises(TimeIsUp):
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            time.sleep(60)  # and not thread.is_alive(), which Python 3.11 breaks where it is interrupted
        go_on.set()
        thread.join()
    assert found[0]["n"] > 0


def test_no_handler_is_replaced(counter):
    """Neither while a loop runs nor after one that ended in any way; nor is the descriptor that signals wake."""

    def state() -> list[Any]:
        descriptor = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(descriptor)
        return [descriptor, *(signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM))]

    def interrupt(index: int, carried: dict[str, int]) -> bool:
        raise KeyboardInterrupt

    with handled(signal.SIGINT, mine := lambda *_: None):
        before, during = state(), []
        counter.loop(2, lambda index, carried: during.append(state()), n=0)
        with pytest.raises(KeyboardInterrupt):
            counter.loop(2, interrupt, n=0)
        counter.loop(2, n=0)
        assert during == [before, before] and state() == before and signal.getsignal(signal.SIGINT) is mine


def test_any_moment_is_right_for_a_signal(counter):
    """Timers of every length: each exception arrives, once, and the graph is as good as before."""
    arrived = 0
    with handled(signal.SIGALRM, _raise):
        for i in range(300):
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-6 * (1 + i * 7 % 199))
                for _ in range(100_000):  # seconds
                    counter.loop(3, None if i % 2 else lambda index, carried: False, n=0)
            except TimeIsUp:
                arrived += 1
    assert arrived == 300
    before = whole(counter)
    assert counter.loop(4, n=1) == dict(n=5) and whole(counter) == before + 4
