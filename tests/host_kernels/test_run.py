"""The run loop and its threads: bindings, carried numbers, why it comes back and how it goes on, parts that are all done once."""

from __future__ import annotations

import ctypes
import multiprocessing
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from iron_host import build
from iron_host.runtime import ASKS, DONE, PASSED, PAUSES, UNFIT

from .conftest import Binding, Carry, Row, Run, Step

KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32)
INT32 = (-(2**31), 2**31 - 1)
SAME = (0, 0, 1, 0, 1, 0, 1, 0, 0)  # the row that is value 0 itself
P, N = 8, 8  # pointer slots; a binding's slot P + i is integer i


@pytest.fixture(scope="module")
def library() -> Any:
    """The compiled run loop."""
    return build.runtime()


@pytest.fixture(params=[1, 2, 5])
def pool(library: Any, request: Any) -> Iterator[Any]:
    """A pool of one, two and five threads."""
    handle = ctypes.c_void_p(library.iron_pool_create(request.param))
    yield handle
    library.iron_pool_free(handle)


@pytest.fixture(scope="module")
def add() -> int:
    """The address of binary<op::Add, float>: pointers a, b, y, integer 0 the size."""
    unit = build.Unit("elementwise.h", "binary<op::Add, float>", "iron_add_of_the_run_tests")
    return build.load([unit])[unit]


def step(kernel: int | None, pointers: Sequence[np.ndarray] = (), ints: Sequence[int] = (), bindings: tuple[int, int] = (0, 0)) -> Step:
    s = Step()
    s.kernel = kernel
    for i, array in enumerate(pointers):
        s.args.p[i] = s.base[i] = array.ctypes.data
    s.args.n[: len(ints)] = list(ints)
    s.first_binding, s.n_bindings = bindings
    return s


def run_of(steps: Sequence[Step], bindings: Sequence[Binding] = (), values: np.ndarray | None = None, carries: Sequence[Carry] = ()) -> Run:
    run = Run((Step * len(steps))(*steps), len(steps), (Binding * max(1, len(bindings)))(*bindings), None, 0, None, 0)
    if values is not None:
        run.values, run.n_values = values.ctypes.data, len(values)
    run.carries, run.n_carries = (Carry * max(1, len(carries)))(*carries), len(carries)
    return run


def test_bindings_move_pointers_and_set_integers(library, pool, add):
    """p[slot] = base + row * unit bytes, n[slot] = row * unit, on every call from the same bases."""
    x, y = np.arange(1000, dtype=np.float32), np.zeros(1000, np.float32)
    bindings = [
        Binding(0, 4, Row(*SAME)),  # a = x + v
        Binding(2, 4, Row(0, 0, 2, 4, 1, 1, 3, -6, 0)),  # y + ((2 v + 4) >> 1) * 3 - 6 = y + 3 v
        Binding(P + 0, 10, Row(0, 1, 1, 0, 1, 0, 1, 0, 0)),  # size 10 w
    ]
    values = np.array([7, 5], np.int64)
    run = run_of([step(add, (x, x, y), (0,), (0, 3))], bindings, values)
    for v, w in ((7, 5), (100, 30), (0, 0), (11, 1)):
        values[:] = v, w
        y[:] = -1
        assert library.iron_begin(pool, ctypes.byref(run), 1, 0, 0) == DONE
        want = np.full(1000, -1, np.float32)
        want[3 * v : 3 * v + 10 * w] = x[v : v + 10 * w] + x[: 10 * w]
        assert np.array_equal(y, want)


def test_a_negative_number_is_shifted_like_pythons(library, pool, add):
    """>> rounds towards minus infinity."""
    x, y = np.ones(64, np.float32), np.zeros(64, np.float32)
    values = np.array([-5], np.int64)
    run = run_of([step(add, (x, x, y), (0,), (0, 1))], [Binding(P, 1, Row(0, 0, 1, 0, 1, 1, -1, 0, 0))], values)
    library.iron_begin(pool, ctypes.byref(run), 1, 0, 0)
    assert y.sum() == 2 * -(-5 >> 1)


def test_carried_numbers_are_read_together(library, pool, add):
    """Two that follow each other swap; one is counted up; one is read from memory the steps wrote."""
    x, y = np.ones(4, np.float32), np.zeros(4, np.float32)
    token = np.array([42], np.int32)
    values = np.array([1, 2, 0, 0], np.int64)
    swap = [Carry(0, 0, Row(0, 1, 1, 0, 1, 0, 1, 0, 0), None, *INT32), Carry(1, 0, Row(0, 0, 1, 0, 1, 0, 1, 0, 0), None, *INT32)]
    count, read = Carry(2, 0, Row(0, 2, 1, 1, 1, 0, 1, 0, 0), None, *INT32), Carry(3, 1, Row(*SAME), token.ctypes.data, *INT32)
    run = run_of([step(add, (x, x, y), (4,))], (), values, [*swap, count, read])
    assert library.iron_begin(pool, ctypes.byref(run), 3, 0, 0) == DONE and run.made == 3
    assert values.tolist() == [2, 1, 3, 42]


def test_a_carried_number_is_read_from_memory_with_its_sign(library, pool, add):
    """Source 1 is int32, source 2 uint32."""
    x, y = np.ones(4, np.float32), np.zeros(4, np.float32)
    word = np.array([-7], np.int32)
    values = np.array([0, 0], np.int64)
    carries = [Carry(i, i + 1, Row(*SAME), word.ctypes.data, -(2**40), 2**40) for i in range(2)]
    run = run_of([step(add, (x, x, y), (4,))], (), values, carries)
    assert library.iron_begin(pool, ctypes.byref(run), 1, 0, 0) == DONE
    assert values.tolist() == [-7, 2**32 - 7]


@pytest.mark.parametrize("scale", [3, -3])
def test_a_pass_does_not_begin_on_a_number_outside_its_range(library, pool, add, scale):
    """The passes before it are made, and the number is there to be told."""
    x, y = np.ones(4, np.float32), np.zeros(4, np.float32)
    values = np.array([1], np.int64)
    low, high = (-9, 9) if scale > 0 else (-27, 9)
    run = run_of([step(add, (x, y, y), (4,))], (), values, [Carry(0, 0, Row(0, 0, scale, 0, 1, 0, 1, 0, 0), None, low, high)])
    want = {3: (3, 27), -3: (4, 81)}[scale]
    assert library.iron_begin(pool, ctypes.byref(run), 10, 0, 0) == UNFIT
    assert (run.made, values[0]) == want and (y == want[0]).all()
    assert library.iron_begin(pool, ctypes.byref(run), 1, 0, 0) == DONE, "the first pass takes what it is given"


def test_it_comes_back_after_each_pass_where_that_is_asked(library, pool, add):
    """After the last one too; going on makes the next."""
    x, y = np.ones(4, np.float32), np.zeros(4, np.float32)
    run = run_of([step(add, (x, y, y), (4,))])
    why = library.iron_begin(pool, ctypes.byref(run), 3, 1, 0)
    for made in (1, 2, 3):
        assert why == PASSED and run.made == made and (y == made).all()
        why = library.iron_go_on(pool, ctypes.byref(run))
    assert why == DONE and (y == 3).all()


@pytest.mark.parametrize("at", [0, 1, 2])
def test_it_comes_back_for_a_step_without_a_kernel(library, pool, add, at):
    """Steps before it are done, those after it wait for it; so in every pass of a loop. Another run may come between."""
    x, y = np.ones(8, np.float32), np.zeros(8, np.float32)
    other, z = run_of([step(add, (x, x, x2 := np.zeros(8, np.float32)), (8,))]), x2
    steps = [step(add, (x, y, y), (8,)) for _ in range(2)]
    steps.insert(at, step(None))
    run = run_of(steps)
    why = library.iron_begin(pool, ctypes.byref(run), 3, 0, 0)
    for made in range(3):
        assert why == ASKS and run.called == at and run.made == made
        assert (y == 12 * made + at).all()
        y[:] += 10
        assert library.iron_begin(pool, ctypes.byref(other), 1, 0, 0) == DONE and (z == 2).all()
        why = library.iron_go_on(pool, ctypes.byref(run))
    assert why == DONE and (y == 36).all()


def test_it_pauses_between_passes_and_within_long_ones(library, pool):
    """Not before the time is over, and nothing is done twice or left out."""
    ran: list[int] = []

    def kernel(tag: int) -> Any:
        def part(args: int, tid: int, nt: int) -> None:
            if tid == 0:
                ran.append(tag)
                time.sleep(0.02)

        return KERNEL(part)

    keep = [kernel(tag) for tag in range(3)]
    run = run_of([step(ctypes.cast(k, ctypes.c_void_p).value) for k in keep])

    def whole(passes: int, pause_ns: int) -> list[tuple[int, int]]:
        ran.clear()
        pauses = []
        why = library.iron_begin(pool, ctypes.byref(run), passes, 0, pause_ns)
        while why == PAUSES:
            pauses.append((run.made, run.step))
            why = library.iron_go_on(pool, ctypes.byref(run))
        assert why == DONE and ran == [0, 1, 2] * passes
        return pauses

    assert whole(2, 0) == []
    assert whole(2, 3600_000_000_000) == []
    assert whole(2, 1) == [(0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]


def test_every_part_runs_once_on_a_thread_of_the_pool(library, pool):
    """Parts 0 to nt - 1, each once a step; steps in order; a step of one thread has one part."""
    ran: list[tuple[int, int, int]] = []
    lock = threading.Lock()

    def kernel(tag: int) -> Any:
        def part(args: int, tid: int, nt: int) -> None:
            with lock:
                ran.append((tag, tid, nt))

        return KERNEL(part)

    keep = [kernel(tag) for tag in range(4)]
    steps = [step(ctypes.cast(k, ctypes.c_void_p).value) for k in keep]
    steps[2].threads = 1
    run = run_of(steps)
    for _ in range(5):
        ran.clear()
        library.iron_begin(pool, ctypes.byref(run), 1, 0, 0)
        assert [tag for tag, _, _ in ran] == sorted(tag for tag, _, _ in ran)
        for tag in range(4):
            parts = [(tid, nt) for t, tid, nt in ran if t == tag]
            assert sorted(parts) == [(i, parts[0][1]) for i in range(parts[0][1])]
        assert [nt for tag, _, nt in ran if tag == 2] == [1]


def test_steps_go_together(library, pool):
    """A group's steps have their parts in proportion to their work, all of them once, before anything after the group."""
    ran: list[tuple[int, int, int]] = []
    lock = threading.Lock()

    def kernel(tag: int) -> Any:
        def part(args: int, tid: int, nt: int) -> None:
            with lock:
                ran.append((tag, tid, nt))

        return KERNEL(part)

    keep = [kernel(tag) for tag in range(5)]
    steps = [step(ctypes.cast(k, ctypes.c_void_p).value) for k in keep]
    steps[1].together = 3
    for s, work in zip(steps, (1, 600, 190, 1, 1), strict=True):
        s.work = work
    run = run_of(steps)
    for _ in range(20):
        ran.clear()
        library.iron_begin(pool, ctypes.byref(run), 1, 0, 0)
        order = [0 if tag == 0 else 1 if tag < 4 else 2 for tag, _, _ in ran]
        assert order == sorted(order)
        counts = []
        for tag in range(5):
            parts = [(tid, nt) for t, tid, nt in ran if t == tag]
            assert sorted(parts) == [(i, parts[0][1]) for i in range(parts[0][1])]
            counts.append(len(parts))
        assert counts[1] >= counts[2] >= counts[3] == 1 and counts[0] == counts[4] and sum(counts[1:4]) <= counts[0] + 2


def test_a_step_says_how_many_parts_it_has(library, pool):
    """For each thread, of several; those that say nothing have eight, and of steps that go together each has its share of its own."""
    ran: list[tuple[int, int]] = []
    lock = threading.Lock()

    def kernel(tag: int) -> Any:
        def part(args: int, tid: int, nt: int) -> None:
            with lock:
                ran.append((tag, nt))

        return KERNEL(part)

    keep = [kernel(tag) for tag in range(4)]
    steps = [step(ctypes.cast(k, ctypes.c_void_p).value) for k in keep]
    steps[1].parts, steps[2].parts, steps[2].together = 3, 2, 2
    threads = library.iron_pool_threads(pool)
    library.iron_begin(pool, ctypes.byref(run_of(steps)), 1, 0, 0)
    found = [{nt for tag, nt in ran if tag == wanted} for wanted in range(4)]
    assert found == ([{8 * threads}, {3 * threads}, {threads}, {4 * threads}] if threads > 1 else [{1}] * 4)


def test_bindings_reach_every_step_of_a_group(library, pool, add):
    """Numbers of a call are patched into all steps that go together."""
    x, y = np.ones(300, np.float32), np.zeros((3, 300), np.float32)
    values = np.array([7], np.int64)
    steps = [step(add, (x, x, row), (0,), (i, 1)) for i, row in enumerate(y)]
    steps[0].together = 3
    run = run_of(steps, [Binding(P, scale, Row(*SAME)) for scale in (1, 10, 30)], values)
    for n in (7, 3, 10):
        values[0], y[:] = n, 0
        library.iron_begin(pool, ctypes.byref(run), 1, 0, 0)
        assert [int(row.sum()) for row in y] == [2 * n, 20 * n, 60 * n]


def test_scratch_is_a_threads_own_and_shared_is_everyones(library, pool):
    """Both are aligned to 64 bytes and as large as was reserved; a later, larger run gets more."""
    places: list[tuple[int, int, int]] = []
    lock = threading.Lock()

    def part(args: int, tid: int, nt: int) -> None:
        tail = ctypes.cast(args + (8 + 24 + 4) * 8, ctypes.POINTER(ctypes.c_uint64))
        scratch, shared = tail[0], tail[1]
        ctypes.memset(scratch, 1, size)
        with lock:
            places.append((scratch, shared, threading.get_ident()))

    keep = KERNEL(part)
    for size in (100, 5000, 60000):
        s = step(ctypes.cast(keep, ctypes.c_void_p).value)
        s.scratch_bytes, s.shared_bytes = size, 3 * size
        run = run_of([s])
        places.clear()
        assert library.iron_pool_reserve(pool, 3 * size, size) == 0
        library.iron_begin(pool, ctypes.byref(run), 1, 0, 0)
        assert all(a % 64 == 0 and b % 64 == 0 for a, b, _ in places)
        assert len({b for _, b, _ in places}) == 1
        by_thread = sorted({(a, thread) for a, _, thread in places})
        assert len({thread for _, thread in by_thread}) == len(by_thread)
        assert all(y - x >= size for (x, _), (y, _) in pairwise(by_thread))


def _busy(stop: Any) -> None:
    while not stop.is_set():
        sum(range(10000))


def test_results_are_right_while_other_processes_take_the_cores(library, add):
    """Thousands of steps in which each reads what the last one wrote, beside busy processes; no clock is asked."""
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    others = [context.Process(target=_busy, args=(stop,), daemon=True) for _ in range(2)]
    for process in others:
        process.start()
    pool = ctypes.c_void_p(library.iron_pool_create(3))
    try:
        x, y = np.ones(3000, np.float32), np.zeros(3000, np.float32)
        run = run_of([step(add, (x, y, y), (3000,))] * 50)
        assert library.iron_begin(pool, ctypes.byref(run), 40, 0, 0) == DONE and run.made == 40
        assert (y == 2000).all()
    finally:
        stop.set()
        for process in others:
            process.join(20)
        library.iron_pool_free(pool)


def test_pools_come_and_go(library, add):
    """Made, used once and freed, many times; workers asleep or awake both leave."""
    x, y = np.ones(100, np.float32), np.zeros(100, np.float32)
    run = run_of([step(add, (x, y, y), (100,))])
    for i in range(30):
        pool = ctypes.c_void_p(library.iron_pool_create(i % 4 + 1))
        if i % 3:
            library.iron_begin(pool, ctypes.byref(run), 1, 0, 0)
        library.iron_pool_free(pool)
    assert (y == 20).all()
