"""Forked children: memory of their own, and nothing of ours that hangs, wherever the parent's threads stood."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import pickle
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import iron_core as iron
from iron_core.cache.store import Cache
from iron_host import pools
from iron_host.backend import HostBackend
from iron_ops_aie import Copy, ElementwiseAdd
from tests.host.meeting import HANG, LOOK, Aside, Held, Peek, Peeking, looks

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning"),
]

F32 = np.float32
ONE = np.ones(4, F32)


class Sum(iron.Graph):
    """The sum of everything it was given; counts its steps."""

    def __init__(self) -> None:
        self.sum = iron.state((4,), F32)
        self.step = iron.weight(ONE)

    def body(self, x: Any = None, *, n: iron.Carried[np.int32]) -> Any:
        y = ElementwiseAdd(Peek(self.step) if x is None else x, self.sum)
        Copy(y, self.sum)
        return y, iron.carry(n=n + 1)


@pytest.fixture(autouse=True)
def _nobody_looks():
    looks.clear()
    yield
    looks.clear()


def forked() -> tuple[int, Any, Any]:
    """Fork: (0, None, where to send) in the child, (its number, where it sends, None) in the parent."""
    read, write = os.pipe()
    child = os.fork()
    if child:
        os.close(write)
        return child, read, None
    os.close(read)
    signal.alarm(HANG)  # if it hangs after its parent is gone
    return 0, None, write


def sends(write: int, function: Callable[[], Any]) -> None:
    """In the child: send what a function returns, and end."""
    try:
        answer = pickle.dumps(function())
    except BaseException:
        answer = pickle.dumps("".join(traceback.format_exc()))
    with os.fdopen(write, "wb") as out:
        out.write(answer)
    os._exit(0)


def answer(child: int, read: int) -> Any:
    """In the parent: what the child sent."""
    try:
        assert select.select([read], [], [], HANG)[0], "the child hangs"
        with os.fdopen(read, "rb") as sent:
            return pickle.loads(sent.read())
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def in_child(function: Callable[[], Any]) -> Any:
    """What a function returns in a forked child."""
    child, read, write = forked()
    if not child:
        sends(write, function)
    return answer(child, read)


@pytest.mark.parametrize("backend", [HostBackend(threads=1), HostBackend(threads=2), "reference"], ids=str)
def test_a_child_has_states_of_its_own(backend):
    """What it adds up is not in its parent's sum, nor the other way round."""
    total = Sum().compile(x=((4,), F32), backend=backend)
    total(ONE, n=0)

    def five() -> list[float]:
        return [float(total(ONE, n=0)[0][0]) for _ in range(5)]

    assert in_child(five) == [2, 3, 4, 5, 6]
    assert total(ONE, n=0)[0][0] == 2


def test_a_child_has_an_arena_of_its_own():
    """A call of the parent's between two steps of the child's call changes nothing of it, and the other way round."""
    graph = Peeking().compile(x=((64,), F32), backend=HostBackend(threads=2))
    x, other = np.linspace(-2, 2, 64).astype(F32), np.full(64, 9, F32)
    want = graph(x)
    ours, theirs = os.pipe(), os.pipe()
    child, read, write = forked()
    mine, turn = (theirs, ours) if child else (ours, theirs)

    def meet() -> None:  # both are inside a step; then both go on
        os.write(mine[1], b".")
        assert os.read(turn[0], 1) == b"."

    looks.append(meet)
    if not child:
        sends(write, lambda: np.array_equal(graph(x), want))
    second = graph(other)
    looks.clear()
    assert answer(child, read) is True
    assert np.array_equal(second, graph(other))
    for end in (*ours, *theirs):
        os.close(end)


@pytest.mark.parametrize("backend", [HostBackend(threads=2), "reference"], ids=str)
def test_a_child_forked_while_another_thread_is_in_a_call_calls(backend):
    """The locks that thread has are free in the child, of the graph it was in and of others."""
    graph = Peeking().compile(x=((64,), F32), backend=backend)
    other = Sum().compile(x=((4,), F32), backend=backend)
    x = np.linspace(-2, 2, 64).astype(F32)
    want = graph(x)
    held = Held(lambda: graph(x))

    def call() -> tuple[bool, float]:
        looks.clear()
        return np.array_equal(graph(x), want), float(other(ONE, n=0)[0][0])

    assert in_child(call) == (True, 1)
    assert np.array_equal(held.go(), want)
    assert other(ONE, n=0)[0][0] == 1


def test_a_child_forked_while_another_thread_compiles_compiles():
    """The version that was being compiled is not there; the child compiles it, and others, anew."""
    inside, gate = threading.Event(), threading.Event()

    class Slow(HostBackend):
        def compile(self, plan: Any, signature: Any) -> Any:
            image = super().compile(plan, signature)
            if os.getpid() == parent:
                inside.set()
                assert gate.wait(HANG)
            return image

    parent, graph, slow = os.getpid(), Peeking(), Slow(threads=2)
    x = np.linspace(-2, 2, 64).astype(F32)
    other = Aside(lambda: graph.compile(x=((64,), F32), backend=slow)(x))
    assert inside.wait(HANG)

    def both() -> tuple[bool, tuple[int, ...]]:
        compiled = graph.compile(x=((64,), F32), backend=slow)
        return np.allclose(compiled(x), graph.reference(x), 1e-5, 1e-5), compiled(np.ones((3, 64), F32)).shape

    assert in_child(both) == (True, (3, 64))
    gate.set()
    assert np.allclose(other.end(), graph.reference(x), 1e-5, 1e-5)


def test_a_child_forked_while_another_thread_imports_imports(tmp_path, monkeypatch):
    """Python leaves the lock of a module that is being imported taken in a child; it is imported anew there."""
    begun, gate = threading.Event(), threading.Event()
    (tmp_path / "iron_slow.py").write_text("number = 7\nmeet()\n")
    monkeypatch.syspath_prepend(tmp_path)
    parent = os.getpid()

    def meet() -> None:
        if os.getpid() == parent:
            begun.set()
            assert gate.wait(HANG)

    monkeypatch.setattr("builtins.meet", meet, raising=False)

    def number() -> int:
        return importlib.import_module("iron_slow").number

    other = Aside(number)
    assert begun.wait(HANG)
    assert in_child(number) == 7
    gate.set()
    assert other.end() == 7
    sys.modules.pop("iron_slow")


def test_a_child_forked_while_another_thread_fills_a_cache_entry_fills_it(tmp_path):
    """The lock file it inherits is its parent's alone: the child waits for no one but the parent, and not for itself."""
    inside, gate, cache = threading.Event(), threading.Event(), Cache("forked", tmp_path)

    def slow(folder: Path) -> None:
        inside.set()
        assert gate.wait(HANG)
        (folder / "by").write_text("parent")

    def fast(folder: Path) -> None:
        (folder / "by").write_text("child")

    other = Aside(lambda: cache.entry("key", slow))
    assert inside.wait(HANG)
    there, here = os.pipe()
    child, read, write = forked()
    if not child:
        other_by = (cache.entry("other", fast) / "by").read_text()
        os.write(here, b".")  # from now on it waits for its parent
        sends(write, lambda: (other_by, (cache.entry("key", fast) / "by").read_text()))
    assert os.read(there, 1)
    assert not select.select([read], [], [], LOOK)[0]
    gate.set()
    other.end()
    assert answer(child, read) == ("child", "parent")
    os.close(there), os.close(here)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_child_forked_inside_a_step_goes_on(threads):
    """Both parent and child have the call's result, and call again; the child's step has one thread, for it has no other."""
    graph = Peeking().compile(x=((4096,), F32), backend=HostBackend(threads=threads))
    x = np.linspace(-2, 2, 4096).astype(F32)
    want = graph(x)
    born: list[Any] = []

    there: list[int] = []

    def fork() -> None:
        looks.clear()
        born.extend(forked())
        there.extend(pool._library.iron_pool_threads(pool.handle) for pool in list(pools._pools) if pool.threads == threads)

    looks.append(fork)
    got = graph(x)
    child, read, write = born
    if not child:
        sends(write, lambda: (np.array_equal(got, want), np.array_equal(graph(x), want), set(there)))
    assert np.array_equal(got, want) and np.array_equal(graph(x), want) and set(there) == {threads}
    assert answer(child, read) == (True, True, {1})


def test_a_child_forked_between_two_steps_of_a_loop_goes_on():
    """Each makes the steps that are left, on its own states."""
    total = Sum().compile(backend=HostBackend(threads=2))
    born: list[Any] = []

    def on_step(i: int, carried: dict[str, int]) -> bool:
        if i == 2:
            born.extend(forked())
        return False

    last = total.loop(5, on_step, n=0)
    child, read, write = born
    if not child:
        sends(write, lambda: (last, total.read("sum").tolist(), total.loop(2, n=0)))
    assert last == {"n": 5} and total.read("sum").tolist() == [5] * 4
    assert answer(child, read) == ({"n": 5}, [5] * 4, {"n": 2})


def test_a_child_has_threads_of_its_own():
    """None of its parent's pools is used, and none is waited for when it is freed."""
    graph = Peeking().compile(x=((4096,), F32), backend=HostBackend(threads=3))
    x = np.linspace(-2, 2, 4096).astype(F32)
    want = graph(x)

    def call() -> tuple[bool, int]:
        assert len(os.listdir("/proc/self/task")) == 1
        same = np.array_equal(graph(x), want)
        return same, len(os.listdir("/proc/self/task"))

    if not os.path.isdir("/proc/self/task"):
        pytest.skip("this platform does not list a process's threads")
    assert in_child(call) == (True, 3)


def _call(numbers: np.ndarray) -> np.ndarray:
    return _SHARED["graph"](numbers)


_SHARED: dict[str, Any] = {}


def test_a_pool_of_processes_gives_what_the_graph_gives():
    """`ProcessPoolExecutor` and `multiprocessing`'s fork, after the graph was used."""
    graph = _SHARED["graph"] = Peeking().compile(x=((256,), F32), backend=HostBackend(threads=2))
    xs = list(np.random.default_rng(0).standard_normal((40, 256)).astype(F32))
    want = [graph(x) for x in xs]
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as many:
        got = list(many.map(_call, xs))
    assert all(np.array_equal(a, b) for a, b in zip(got, want, strict=True))


def test_a_recording_ends_in_a_child():
    """A fork inside a recording, while another thread's run is recorded, leaves nothing to wait for."""
    from iron_host.recording import record

    graph = Peeking().compile(x=((64,), F32), backend=HostBackend(threads=2))
    x = np.ones(64, F32)
    graph(x)
    (version,) = graph.versions.values()
    with record([version.load()]) as found:
        held = Held(lambda: graph(x))
        child, read, write = forked()
        if child:
            held.go()
    if not child:
        sends(write, lambda: len(found.passes))
    assert len(found.passes) == 1
    assert answer(child, read) in (0, 1)


def test_what_a_child_frees_waits_for_no_thread():
    """Pools made before the fork go at once."""
    graph = [Peeking().compile(x=((64,), F32), backend=HostBackend(threads=7))]
    graph[0](np.ones(64, F32))

    def free() -> int:
        import gc

        graph.clear()
        gc.collect()
        return sum(pool.threads == 7 for pool in list(pools._pools))

    assert in_child(free) == 0
