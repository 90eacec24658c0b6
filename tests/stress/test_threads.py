"""One compiled graph under threads, shapes, writes, loops and call-backs at once; and forks of that process."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
import pytest

import iron_core as iron
from iron_core import Case, Testing
from iron_core.errors import CallError
from iron_host.backend import HostBackend
from iron_ops_aie import GEMM, GEMV, Copy, SiLU

N = 64


class Negated(iron.UnaryElementwise):
    """-x; without a kernel, so that Python runs in the middle of a call."""

    test = Testing(Case(size=64))

    def reference(self, x: np.ndarray) -> np.ndarray:
        return -np.asarray(x)


class Work(iron.Graph):
    """With rows: their product with `w`, negated twice by call-backs. Without: one step of s = w s."""

    def __init__(self) -> None:
        self.w = iron.weight(np.eye(N, dtype=np.float32))
        self.s = iron.state((N,), np.float32)

    def body(self, x=None, *, n: iron.Carried[np.int32]):
        if x is None:
            Copy(GEMV(self.w, self.s), self.s)
            return iron.carry(n=n + 1)
        y = GEMM(x, self.w, b_col_maj=True)
        return Negated(SiLU(Negated(y))), iron.carry(n=n)


def once(factor: float) -> float:
    """What a row of ones becomes where w is `factor` times the identity."""
    x = np.float32(-factor)
    return float(-(x / (1 + np.exp(-x))))


FACTORS = (1.0, 2.0)


@pytest.fixture
def work() -> Any:
    return Work().compile(backend=HostBackend(threads=2))


class Failures(list):
    """What went wrong in threads, whose exceptions nobody sees."""

    def of(self, function: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                function()
            except BaseException as error:
                self.append(error)

        return threading.Thread(target=run)

    def run(self, *functions: Callable[[], None]) -> None:
        threads = [self.of(function) for function in functions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self:
            raise self[0]


def calls(work: Any, going: Callable[[], bool], chance: random.Random) -> Callable[[], None]:
    """Rows of any number: all of a result are made with one w."""

    def run() -> None:
        while going():
            rows = chance.randrange(1, 40)
            y, _ = work(np.ones((rows, N), np.float32), n=0)
            assert y.shape == (rows, N)
            assert any(np.allclose(y, once(factor), rtol=1e-5) for factor in FACTORS), np.unique(y)

    return run


def test_calls_loops_and_writes_of_several_threads(work: Any, going: Callable[[], bool], chance: random.Random) -> None:
    """New shapes, replaced weights, loops whose call-backs read, call, write and compile: every result is of one whole w."""
    alone = threading.Lock()

    def writes() -> None:
        while going():
            work.write("w", np.eye(N, dtype=np.float32) * chance.choice(FACTORS))

    def loops() -> None:
        def on_step(index: int, carried: dict[str, int]) -> bool:
            work.read("s")
            for act in (lambda: work(np.ones((3 + index, N), np.float32), n=0), lambda: work.write("w", np.eye(N, dtype=np.float32))):
                if chance.random() < 0.3:
                    try:
                        act()
                    except CallError:
                        pass  # refused in words
            return chance.random() < 0.05

        while going():
            with alone:  # s is one for all
                work.write("s", np.ones(N, np.float32))
                last = work.loop(12, on_step, n=0)["n"]
                s = work.read("s")
            assert 1 <= last <= 12 and (s == s[0]).all() and np.log2(s[0]) in range(last + 1), (last, np.unique(s))

    Failures().run(calls(work, going, chance), calls(work, going, chance), writes, loops, loops)


def test_two_graphs_call_one_another(going: Callable[[], bool], chance: random.Random) -> None:
    """Loops of two graphs whose call-backs call the other one, on two threads: no one waits for ever."""
    first, second = (Work().compile(backend=HostBackend(threads=2)) for _ in range(2))

    def looping(one: Any, other: Any) -> Callable[[], None]:
        def on_step(index: int, carried: dict[str, int]) -> bool:
            try:
                y, _ = other(np.ones((2, N), np.float32), n=0)
                assert np.allclose(y, once(1.0), rtol=1e-5)
            except CallError:
                pass  # refused in words
            return False

        def run() -> None:
            while going():
                assert one.loop(5, on_step, n=0) == {"n": 5}

        return run

    Failures().run(looping(first, second), looping(second, first))


GRAPH: Any = None


def in_child(rows: int) -> float:
    """A call, and a loop over a state of the child's own."""
    y, _ = GRAPH(np.ones((rows, N), np.float32), n=0)
    GRAPH.write("s", np.full(N, rows, np.float32))
    GRAPH.loop(3, n=0)
    assert (GRAPH.read("s") == rows).all()
    return float(y.mean()) if (y == y[0, 0]).all() else float("nan")


def test_pools_of_forked_processes_while_threads_run(work: Any, going: Callable[[], bool], chance: random.Random) -> None:
    """Children forked in the middle of the parent's calls answer right, and change nothing of the parent's."""
    global GRAPH
    GRAPH = work
    work.write("s", np.full(N, 7, np.float32))
    stop = threading.Event()
    failures = Failures()
    others = [failures.of(calls(work, lambda: not stop.is_set(), chance)) for _ in range(2)]
    for thread in others:
        thread.start()
    try:
        while going():
            with ProcessPoolExecutor(3, mp_context=get_context("fork")) as pool:
                found = list(pool.map(in_child, [chance.randrange(1, 60) for _ in range(30)], timeout=120))
            assert np.allclose(found, once(1.0), rtol=1e-5)
            assert (work.read("s") == 7).all()
    finally:
        stop.set()
        for thread in others:
            thread.join()
    assert not failures


class Late(Exception):
    """What the handler raises."""


def test_signals_at_any_time(work: Any, going: Callable[[], bool], chance: random.Random) -> None:
    """A handler's exception ends a call or a loop and arrives, whenever the signal comes; what was done is whole steps."""

    def handler(*_: object) -> None:
        raise Late

    before = signal.signal(signal.SIGALRM, handler)
    arrived = 0
    try:
        while going():
            work.write("w", np.eye(N, dtype=np.float32))
            work.write("s", np.full(N, 3, np.float32))
            try:
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-4, 0.2))
                work.loop(1 << 30, chance.choice((None, lambda index, carried: False)), n=0)
                raise AssertionError("the loop went on to its end")
            except Late:
                arrived += 1
            assert (work.read("s") == 3).all()
            y, _ = work(np.ones((4, N), np.float32), n=0)
            assert np.allclose(y, once(1.0), rtol=1e-5)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert arrived > 10
