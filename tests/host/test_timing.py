"""Recording runs: passes, steps and shares that are consistent, only while a recording is open; limits that are positive."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import iron_core as iron
from iron_core import Q4_1, Carried, PackedArray
from iron_core.backends.run_profile import Limits, kind
from iron_core.errors import CallError
from iron_host import limits
from iron_host.backend import HostBackend
from iron_host.profile import cost, profiled
from iron_host.recording import record
from iron_ops_aie import GEMV, ReLU


class Net(iron.Graph):
    """A product and its ReLU; also counts, so that it can loop."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.weight = iron.weight(rng.standard_normal((256, 64)).astype(np.float32))
        self.x = iron.state(64, np.float32)

    def body(self, *, n: Carried[np.int32]) -> Any:
        return ReLU(GEMV(self.weight, self.x)), iron.carry(n=n + 1)


@pytest.fixture
def net(rng: np.random.Generator) -> Any:
    return Net(rng).compile(backend=HostBackend(threads=2))


def test_every_pass_and_step_is_there(net: Any) -> None:
    """A call and a loop of three are four passes with their numbers; times are ordered and shares lie in their steps."""
    (version,) = net.versions.values()
    executable = version.load()
    with record([executable]) as found:
        net(n=5)
        net.loop(3, n=7)
    assert [p.values["n"] for p in found.passes] == [5, 7, 8, 9]
    assert found.of(executable) == found.passes and found.of(None) == []
    for one in found.passes:
        index, begin, end, busy = one.steps.T
        assert index.tolist() == list(range(len(executable.image.steps)))
        assert (begin <= end).all() and one.begin <= begin.min() and end.max() <= one.end
        assert (begin[1:] >= end[:-1]).all()
        assert len(one.lanes) == 2 and sum(len(lane) for lane in one.lanes) >= len(index)
        shares = np.concatenate(one.lanes)
        assert busy == pytest.approx(np.bincount(shares[:, 0].astype(int), shares[:, 3]))
        for lane in one.lanes:
            rows = lane[:, 0].astype(int)
            assert (lane[:, 1] >= begin[rows]).all() and (lane[:, 2] <= end[rows]).all()


@pytest.mark.parametrize("threads", [1, 2])
def test_steps_that_go_together_are_told_apart(rng: np.random.Generator, threads: int) -> None:
    """Three products of one vector are one wait for all threads; each has what threads were busy with it, of a time in proportion."""

    class Products(iron.Graph):
        def __init__(self) -> None:
            sizes = ((1024, np.float32), (512, np.float16), (2048, np.float32))
            self.weights = [iron.weight(rng.standard_normal((rows, 256)).astype(dtype)) for rows, dtype in sizes]

        def body(self, x: Any) -> Any:
            return tuple(GEMV(w, x, O=np.float32) for w in self.weights)

    net = Products().compile(backend=HostBackend(threads=threads), x=((256,), np.float32))
    executable = next(iter(net.versions.values())).load()
    assert [step.together for step in executable.image.steps] == [3, 1, 1]
    with record([executable]) as found:
        for _ in range(20):
            net(np.ones(256, np.float32))
    assert len(found.passes) == 20
    for one in found.passes:
        index, begin, end, busy = one.steps.T
        assert index.tolist() == [0, 1, 2] and (busy > 0).all()
        assert (begin[1:] == end[:-1]).all()
        shares = np.concatenate(one.lanes)
        assert busy == pytest.approx(np.bincount(shares[:, 0].astype(int), shares[:, 3]))
        assert busy / (end - begin) == pytest.approx(busy.sum() / (end[-1] - begin[0]), rel=0.01)
        assert busy.sum() <= threads * (end[-1] - begin[0])


def test_one_recording_at_a_time(net: Any) -> None:
    """A second over runs of as many threads is refused, and the first goes on."""
    executable = next(iter(net.versions.values())).load()
    with record([executable]) as found:
        with pytest.raises(CallError, match="recorded already"), record([executable]):
            pass
        net(n=1)
    assert [p.values["n"] for p in found.passes] == [1]


def test_nothing_is_recorded_outside(net: Any) -> None:
    """Runs before and after the block leave no trace, and the numbers they give are the same."""
    executable = next(iter(net.versions.values())).load()
    before = net(n=0)[0].copy()
    with record([executable]) as found:
        inside = net(n=0)[0].copy()
    net(n=0)
    assert len(found.passes) == 1 and np.array_equal(before, inside)
    with record([executable]) as empty:
        pass
    assert empty.passes == []


def test_costs_are_the_operands(net: Any) -> None:
    """A product moves its operands once and multiplies and adds once per weight."""
    gemv, relu = next(iter(net.versions.values())).plan.steps
    assert [kind(type(step.op).__name__, step.operands) for step in (gemv, relu)] == ["GEMV float32", "ReLU"]
    found = cost(gemv, {})
    assert (found.nbytes, found.operations) == (4 * (256 * 64 + 64 + 256), 2 * 256 * 64)
    assert found.resident == 4 * (256 * 64 + 64)
    assert cost(relu, {}).operations == 0


@pytest.mark.parametrize(
    ("weights", "more", "integer"),
    [
        (np.zeros((64, 64), np.int8), dict(O=np.float32), True),
        (PackedArray(np.zeros(64 * Q4_1.row_bytes(64), np.uint8), (64, 64), Q4_1), dict(activations="int8_block"), True),
        (np.zeros((64, 64), np.float32), {}, False),
    ],
    ids=["int8", "int8_block", "float32"],
)
def test_operations_of_int8_are_told_from_those_of_floats(weights: Any, more: Any, integer: bool) -> None:
    """Of weights that are int8, and of blocks that meet rounded activations."""

    class Product(iron.Graph):
        def __init__(self) -> None:
            self.w = iron.weight(weights)

        def body(self, x: Any) -> Any:
            return GEMV(self.w, x, **more)

    x = np.zeros(64, np.int8 if "O" in more else np.float32)
    graph = Product().compile(backend=HostBackend(threads=1), x=(x.shape, x.dtype))
    executable = next(iter(graph.versions.values())).load()
    with profiled({"a product": executable}) as found:
        graph(x)
    ((row, *_),) = (phase.rows for phase in found.phases())
    assert row.operations > 0 and row.integer == integer


def test_limits_are_measured() -> None:
    """Each is a positive rate, on as many threads as asked."""
    found = limits.measure(2, nbytes=1 << 20, rounds=64, repeats=2)
    assert found.threads == 2
    assert min(found.read_bytes, found.float_operations, found.int8_operations) > 0


def test_arrays_are_read_where_they_lie(net: Any) -> None:
    """Weights of any size and place, a whole number of 512-byte blocks of each part's share."""
    executable = next(iter(net.versions.values())).load()
    net(n=0)
    (weight,) = executable.memory.weights()
    assert weight.nbytes == 4 * 256 * 64
    odd = np.zeros(70001, np.uint8)[1:]
    assert limits.read_rate(executable.runtime, [weight, odd, odd[:7], np.zeros(4096)], repeats=1) > 0


@pytest.mark.parametrize("graphs", [0, 1, 2])
def test_a_profile_reads_the_weights_of_all_its_graphs(rng: np.random.Generator, monkeypatch: Any, graphs: int) -> None:
    """By as many threads as the widest of them has, whatever their order; where there are none, no rate is made up."""
    read: list[tuple[int, list[int]]] = []

    def noted(engine: Any, arrays: Any) -> float:
        read.append((engine.threads, [a.nbytes for a in arrays]))
        return 7.0

    monkeypatch.setattr("iron_host.profile.measure", lambda threads: Limits(threads, 1.0, 1.0, 1.0))
    monkeypatch.setattr("iron_host.profile.read_rate", noted)
    nets = [Net(rng).compile(backend=HostBackend(threads=n)) for n in (2, 1)[:graphs]]
    loaded = {str(i): next(iter(one.versions.values())).load() for i, one in enumerate(nets)}
    with HostBackend().profiled(loaded) as found:
        for one in nets:
            one(n=0)
    assert read == ([(2, [4 * 256 * 64] * graphs)] if graphs else [])
    assert found.weights_read == (7.0 if graphs else None)
    assert len(found.phases()) == graphs
