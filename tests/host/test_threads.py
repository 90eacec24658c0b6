"""Threads that share compiled graphs: one at a time on one graph's memory, side by side on different graphs."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import iron_core as iron
from iron_core.backends.choose import get
from iron_core.compiled.operator_image import OperatorImage
from iron_core.errors import CallError, OutOfMemory
from iron_host import pools
from iron_host.backend import HostBackend
from iron_host.pools import Pools
from iron_ops_aie import GEMV, Copy, ElementwiseAdd
from tests.host.meeting import HANG, Aside, Held, Peek, Peeking, looks

F32 = np.float32
both = pytest.mark.parametrize("backend", ["host", "reference"])


class Product(iron.Graph):
    """w @ peek(x)."""

    def __init__(self, w: np.ndarray) -> None:
        self.w = iron.weight(w)

    def body(self, x: Any) -> Any:
        return GEMV(self.w, Peek(x))


class Sum(iron.Graph):
    """The sum of everything it was given."""

    def __init__(self) -> None:
        self.sum = iron.state((4,), F32)

    def body(self, x: Any) -> Any:
        y = ElementwiseAdd(x, self.sum)
        Copy(y, self.sum)
        return y


@pytest.fixture(autouse=True)
def _nobody_looks():
    looks.clear()
    yield
    looks.clear()


# -- compiling ------------------------------------------------------------------------------------


@both
def test_versions_are_added_one_after_the_other(backend):
    """While one is compiled no other is traced; each finds the weight it was planned with, at its first call and later."""
    traced, others = [], []

    class Two(iron.Graph):
        """Four rows meet one weight, eight the other."""

        def __init__(self) -> None:
            self.four, self.eight = iron.weight(np.full((4, 64), 1, F32)), iron.weight(np.full((8, 64), 100, F32))

        def body(self, x: Any) -> Any:
            traced.append(x.shape[0])
            return ElementwiseAdd(x, self.four if x.shape[0] == 4 else self.eight)

    class Slow(type(get(backend))):
        def compile(self, plan: Any, signature: Any) -> Any:
            if not others:
                others.append(Aside(lambda: ask(8)))
                assert others[0].waits() and traced == [4]
            return super().compile(plan, signature)

    graph, slow = Two(), Slow()

    def ask(rows: int) -> Any:
        return graph.compile(x=((rows, 64), F32), backend=slow)(np.zeros((rows, 64), F32))

    assert (ask(4) == 1).all() and (others[0].end() == 100).all()
    assert (ask(4) == 1).all() and (ask(8) == 100).all()
    assert traced == [4, 8]


def test_two_threads_that_ask_for_one_version_get_one():
    """Whoever waits finds it compiled; its first calls load it once."""
    compiled, loaded, others = [], [], []

    class Slow(type(get("reference"))):
        def compile(self, plan: Any, signature: Any) -> Any:
            compiled.append(signature)
            others.append(Aside(lambda: graph.compile(x=((4,), F32), backend=slow)))
            assert others[0].waits()
            return super().compile(plan, signature)

        def load(self, image: Any, memory: Any) -> Any:
            loaded.append(image)
            others.append(Aside(lambda: graph.compile(x=((4,), F32), backend=slow).load()(np.ones(4, F32))))
            assert others[1].waits()
            return super().load(image, memory)

    graph, slow = Sum(), Slow()
    total = graph.compile(x=((4,), F32), backend=slow)
    assert others[0].end() is total
    assert {total(np.ones(4, F32))[0], others[1].end()[0]} == {1, 2}
    assert len(compiled) == len(loaded) == 1


@both
def test_a_version_is_compiled_while_another_runs(backend):
    """Adding one waits for no call; its memory is placed when it is first called, after the call that runs."""
    graph = Peeking().compile(x=((64,), F32), backend=backend)
    x, large = np.linspace(-2, 2, 64).astype(F32), np.full((32, 64), 2, F32)
    want = graph(x)
    held = Held(lambda: graph(x))
    Aside(lambda: graph.add(x=((32, 64), F32))).end()
    assert len(graph.versions) == 2
    other = Aside(lambda: graph(large))
    assert other.waits()
    assert np.array_equal(held.go(), want)
    assert other.end().shape == (32, 64)
    assert np.array_equal(graph(x), want)


def test_a_version_added_by_what_compiles_one_is_refused():
    """Two plans would each be made of the same one before."""

    class Meddling(type(get("reference"))):
        def compile(self, plan: Any, signature: Any) -> Any:
            graph.compile(x=((8,), F32), backend=meddling)

    graph, meddling = Peeking(), Meddling()
    with pytest.raises(CallError, match="Peeking: a version is added while one is being compiled"):
        graph.compile(x=((4,), F32), backend=meddling)


# -- calls of one graph ----------------------------------------------------------------------------


@both
def test_a_weight_is_written_between_two_calls(backend):
    """A call that runs keeps the weight it began with; the next one has the new one."""
    graph = Product(np.full((8, 8), 1, F32)).compile(x=((8,), F32), backend=backend)
    x = np.ones(8, F32)
    held = Held(lambda: graph(x))
    write = Aside(lambda: graph.write("w", np.full((8, 8), 2, F32)))
    assert write.waits()
    assert (held.go() == 8).all()
    write.end()
    assert (graph(x) == 16).all()


@both
def test_reading_waits_for_a_call(backend):
    """What is read is never half of a call."""
    graph = Product(np.full((8, 8), 1, F32)).compile(x=((8,), F32), backend=backend)
    held = Held(lambda: graph(np.ones(8, F32)))
    read = Aside(lambda: graph.read("w"))
    assert read.waits()
    held.go()
    assert (read.end() == 1).all()


def test_versions_of_other_thread_counts_take_turns_too(monkeypatch):
    """One loaded where fewer threads are allowed than later has a pool of its own, and the same arena."""
    graph = Peeking()
    for size, threads in ((64, 1), (63, 2)):
        monkeypatch.setenv("IRON_THREADS", str(threads))
        first = graph.compile(x=((size,), F32), backend="host").load()
    assert [version.executable.runtime.threads for version in first.versions.values()] == [1, 2]
    x = np.linspace(-2, 2, 64).astype(F32)
    want = first(x), first(x[:63].copy())
    held = Held(lambda: first(x))
    other = Aside(lambda: first(x[:63].copy()))
    assert other.waits()
    assert np.array_equal(held.go(), want[0]) and np.array_equal(other.end(), want[1])


@both
def test_an_operators_image_keeps_calls_apart(backend, monkeypatch):
    """What it writes in part is written, run and read back before another thread's call begins."""
    copy = OperatorImage(Copy(input_size=2, output_size=4, dst=iron.Pattern(0, (2,), (1,)), X=F32), backend=backend)
    write, others = copy._program.write, []

    def slow(name: str, start: Any) -> None:
        write(name, start)
        if not others:
            others.append(Aside(lambda: copy(np.full(2, 5, F32), np.full(4, 6, F32))))
            assert others[0].waits()

    monkeypatch.setattr(copy._program, "write", slow)
    assert copy(np.full(2, 7, F32), np.full(4, 8, F32)).tolist() == [7, 7, 8, 8]
    assert others[0].end().tolist() == [5, 5, 6, 6]


# -- calls of different graphs ---------------------------------------------------------------------


@pytest.mark.parametrize("threads", [(1, 1), (2, 2), (1, 2)])
def test_different_graphs_run_side_by_side(threads):
    """A call-back may wait for a thread that runs another graph, on as many threads or not."""
    mine, other = (Peeking().compile(x=((64,), F32), backend=HostBackend(threads=n)) for n in threads)
    x = np.ones(64, F32)
    want = mine(x)
    held = Held(lambda: mine(x))
    assert np.array_equal(Aside(lambda: other(x)).end(), want)
    assert np.array_equal(held.go(), want)


@both
def test_graphs_that_call_one_another_do_not_wait_for_ever(backend):
    """Each is inside its own call and calls the other's graph: one of the two is refused, and says why."""
    mine, other = (Peeking().compile(x=((64,), F32), backend=backend) for _ in range(2))
    x = np.ones(64, F32)
    want = mine(x)
    meet, calls = threading.Barrier(2), {}

    def cross() -> None:
        call = calls.pop(threading.get_ident(), None)
        if call is not None:
            meet.wait(HANG)
            assert np.array_equal(call(x), want)

    looks.append(cross)
    ready = threading.Barrier(2)

    def run(graph: Any, call: Any) -> Any:
        calls[threading.get_ident()] = call
        ready.wait(HANG)
        return graph(x)

    one, two = Aside(lambda: run(mine, other)), Aside(lambda: run(other, mine))
    refused, made = sorted((one.end(), two.end()), key=lambda result: isinstance(result, np.ndarray))
    assert isinstance(refused, CallError) and "which waits for one on this thread to end" in str(refused)
    assert np.array_equal(made, want)
    assert np.array_equal(mine(x), want) and np.array_equal(other(x), want)


def test_a_thread_that_waits_for_its_own_graph_through_another_waits_only_for_itself():
    """A call-back's own thread may call other graphs, however deep."""
    mine, other = (Peeking().compile(x=((64,), F32), backend=HostBackend(threads=2)) for _ in range(2))
    x = np.ones(64, F32)
    want = mine(x)
    inner: list[Any] = []

    def once() -> None:
        if not inner:
            inner.append(None)
            inner.append(other(x))

    looks.append(once)
    assert np.array_equal(mine(x), want) and np.array_equal(inner[1], want)


# -- pools of threads ------------------------------------------------------------------------------


def of(threads: int) -> int:
    """How many pools of so many threads there are."""
    gc.collect()
    return sum(pool.threads == threads for pool in list(pools._pools))


def at_once(graphs: list[Any], many: ThreadPoolExecutor, x: np.ndarray) -> None:
    """Run all of them at one time."""
    meet = threading.Barrier(len(graphs))
    looks.append(lambda: meet.wait(HANG))
    for future in [many.submit(graph, x) for graph in graphs]:
        future.result(HANG)
    looks.clear()


def test_pools_go_with_the_threads_that_made_them_and_the_last_with_the_last_graph():
    """Runs at one time have a pool each; then one stays, as long as there is a graph of that thread count."""
    x = np.ones(64, F32)
    graphs = [Peeking().compile(x=((64,), F32), backend=HostBackend(threads=5)) for _ in range(4)]
    with ThreadPoolExecutor(4) as many:
        at_once(graphs, many, x)
        assert of(5) == 4
    assert of(5) == 1
    graphs[0](x)
    assert of(5) == 1
    graphs.clear()
    assert of(5) == 0


def test_pools_that_runs_no_longer_need_are_given_up():
    """Threads that live on keep no pool of a busy moment for ever."""
    x = np.ones(64, F32)
    graphs = [Peeking().compile(x=((64,), F32), backend=HostBackend(threads=6)) for _ in range(3)]
    with ThreadPoolExecutor(3) as many:
        at_once(graphs, many, x)
        assert of(6) == 3
        for _ in range(2 * pools.RUNS):
            graphs[0](x)
        assert of(6) == 1


def test_a_pool_of_fewer_threads_than_asked_for_serves_one_run(monkeypatch):
    """Where the system starts no more threads, that is said, and the next run tries again."""

    class Library:
        def iron_pool_create(self, threads: int) -> int:
            return 1

        def iron_pool_threads(self, handle: int) -> int:
            return 3

        def iron_pool_forked(self, handle: int) -> None: ...

        def iron_pool_free(self, handle: int) -> None:
            freed.append(handle)

    freed: list[int] = []
    some = Pools(Library(), 8)
    with pytest.warns(UserWarning, match="threads=8, and the system starts only 3 now"):
        pool = some.take()
    some.give(pool)
    del pool
    assert freed == [1]


def test_no_memory_for_a_steps_threads_is_said_and_leaves_the_pool_of_use():
    """The bytes are named; a run that needs less goes on."""
    some = Pools(iron_library(), 2)
    pool = some.take()
    with pytest.raises(OutOfMemory, match=rf"\({1 << 50} bytes for 2\)") as caught:
        pool.reserve(1 << 50, 64)
    assert isinstance(caught.value, MemoryError) and caught.value.nbytes == 1 << 50
    with pytest.raises(OutOfMemory, match=rf"\({1 << 51} bytes for 2\)"):
        pool.reserve(64, 1 << 50)
    pool.reserve(64, 64)
    assert (pool.shared, pool.scratch) == (64, 64)


def iron_library() -> Any:
    from iron_host import build

    return build.runtime()
