"""A graph used from inside its own call: everything between two steps of a loop; inside a step, only what leaves memory alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import iron_core as iron
from iron_core.errors import CallError
from iron_host.backend import HostBackend
from iron_ops_aie import GEMV, Copy, ElementwiseAdd, SiLU
from tests.host.meeting import Peek, looks

F32 = np.float32
both = pytest.mark.parametrize("backend", ["host", "reference"])


class Power(iron.Graph):
    """Every step, s = w @ s, returned too; given x, silu of it, on a state that steps do not touch."""

    def __init__(self) -> None:
        self.w = iron.weight(np.full((4, 4), 0.25, F32))
        self.s = iron.state((4,), F32)

    def body(self, x: Any = None, *, n: iron.Carried[np.int32]) -> Any:
        if x is not None:
            return ElementwiseAdd(SiLU(x), SiLU(x)), iron.carry(n=n)
        y = Peek(GEMV(self.w, self.s))
        Copy(y, self.s)
        return y, iron.carry(n=n + 1)


@pytest.fixture(autouse=True)
def _nobody_looks():
    looks.clear()
    yield
    looks.clear()


@pytest.fixture
def power(backend: str) -> Any:
    graph = Power().compile(backend=HostBackend(threads=2) if backend == "host" else backend)
    graph.write("s", np.ones(4, F32))
    return graph


def twice(value: float) -> np.ndarray:
    return np.full((4, 4), value / 2, F32)


#: What is done between two steps, on the graph and the number of the step just made.
BETWEEN = {
    "another version": lambda g, i: g(np.full((3 + i, 500), 7, F32), n=0),
    "its own version": lambda g, i: g(n=100),
    "a loop of its own": lambda g, i: g.loop(2, n=100),
    "a loop with a step of its own": lambda g, i: g.loop(2, lambda k, _: not g(n=9), n=100),
    "writing a weight": lambda g, i: g.write("w", twice(i)),
    "writing a state": lambda g, i: g.write("s", np.arange(i, i + 4, dtype=F32)),
    "reading": lambda g, i: (g.read("w"), g.read("s")),
    "adding and loading": lambda g, i: (g.add(x=((5 + i, 700), F32)), g.load()),
}


@both
@pytest.mark.parametrize("what", BETWEEN)
def test_between_two_steps_of_a_loop_a_graph_is_at_rest(power, what):
    """A loop with something done after every step is as many calls with the same between them, number for number."""
    seen: list[Any] = []

    def on_step(i: int, carried: dict[str, int]) -> bool:
        BETWEEN[what](power, i)
        seen.append((carried["n"], power.read("s").tolist()))
        return False

    assert power.loop(4, on_step, n=10) == {"n": 14}
    after = power.read("s"), power.read("w")
    power.write("s", np.ones(4, F32))
    power.write("w", np.full((4, 4), 0.25, F32))
    wanted = []
    for i in range(4):
        _, carried = power(n=10 + i)
        BETWEEN[what](power, i)
        wanted.append((carried.n, power.read("s").tolist()))
    assert seen == wanted
    assert np.array_equal(after[0], power.read("s")) and np.array_equal(after[1], power.read("w"))


def test_a_loop_writes_its_results_where_it_did_before():
    """A call of the loop's own version between two steps has tensors of its own, which are gone after it."""
    power = Power().compile(backend=HostBackend(threads=2))
    executable = power.versions[()].load()
    places = []

    def on_step(i: int, _: dict[str, int]) -> bool:
        places.append(executable._ports["output", 0])
        kept.append(power(n=0))
        places.append(executable._ports["output", 0])
        return False

    kept: list[Any] = []
    power.loop(3, on_step, n=0)
    assert len(set(places)) == 1


#: What is refused inside a step.
INSIDE = {
    "a call": lambda g: g(n=0),
    "another version's call": lambda g: g(np.ones((64, 64), F32), n=0),
    "a loop": lambda g: g.loop(2, n=0),
    "write() of a weight": lambda g: g.write("w", twice(1)),
    "write() of a state": lambda g: g.write("s", np.ones(4, F32)),
    "load() of another version": lambda g: (g.add(x=((64, 64), F32)), g.load()),
}


@both
@pytest.mark.parametrize("what", INSIDE)
@pytest.mark.parametrize("how", ["a call", "a loop"])
def test_inside_a_step_what_would_change_memory_is_refused(power, what, how):
    """One sentence says so; the call it was made in ends with it, and the next one is right."""
    looks.append(lambda: INSIDE[what](power))
    with pytest.raises(CallError, match=r"Power: .* inside one of its own steps, .* read\(\) and add\(\) work"):
        power(n=0) if how == "a call" else power.loop(3, n=0)
    looks.clear()
    power.write("s", np.ones(4, F32))
    assert power.loop(3, n=0) == {"n": 3}
    assert (power.read("s") == 1).all()
    assert power(np.zeros((64, 64), F32), n=0)[0].shape == (64, 64)


@both
def test_inside_a_step_memory_is_read_and_versions_are_compiled(power):
    """A reference sees the states as they are at that point; what a new version brings is placed after the call."""
    seen = []

    def look() -> None:
        seen.append(power.read("s")[0])
        power.add(x=((64, 64), F32))

    power.write("w", twice(1))
    looks.append(look)
    assert power.loop(3, n=0) == {"n": 3}
    assert seen == [1, 2, 4]
    assert len(power.versions) == 2
    assert power(np.zeros((64, 64), F32), n=0)[0].shape == (64, 64)


@both
def test_a_refusal_that_a_call_back_takes_leaves_the_call_right(power):
    """Who catches it in the reference goes on."""

    def look() -> None:
        with pytest.raises(CallError):
            power(n=0)

    looks.append(look)
    assert power.loop(3, n=0) == {"n": 3}
    assert (power.read("s") == 1).all()


def test_the_simulator_is_at_rest_between_two_steps_too():
    """The same holds for a loop on a simulated array."""
    seen = []

    class Doubling(iron.Graph):
        def __init__(self) -> None:
            self.s = iron.state((1024,))

        def body(self, *, n: iron.Carried[np.int32]) -> Any:
            y = ElementwiseAdd(self.s, self.s)
            Copy(y, self.s)
            return y, iron.carry(n=n + 1)

    graph = Doubling().compile(backend="sim", dev="npu2")
    graph.write("s", np.ones(1024, iron.bfloat16))

    def on_step(i: int, _: dict[str, int]) -> bool:
        seen.append(float(graph(n=0)[0][0]))
        if i == 0:
            graph.write("s", np.full(1024, 3, iron.bfloat16))
        return False

    assert graph.loop(2, on_step, n=5) == {"n": 7}
    assert seen == [4, 12]
