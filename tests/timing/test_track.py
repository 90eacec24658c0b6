"""A core's program on a clock of its own work: in closed form as turn by turn."""

from __future__ import annotations

import numpy as np
import pytest

from iron_core.array.expression import Binary, Const, Var
from iron_core.array.program import Acquire, Call, Element, For, If, Load, Local, Release, Store
from iron_core.declare.objects import ObjectType
from iron_sim.timing.track import GIVE, WAIT, track

KIND = ObjectType.of(8, "int32")
ENDS = {("a", "consume"): 0, ("y", "produce"): 1}
COSTS = {Acquire: 7.0, Release: 1.0, Call: 100.0, For: 5.0}
WORDS = Local("words", KIND)


def cost(statement):
    return COSTS.get(type(statement), 0.0)


def walked(*program, words=(), waited=frozenset({0}), depths=None):
    return track(program, ENDS, dict(words), cost, waited, depths or {})


def passing(times, var="i"):
    """A loop that passes `times` objects on."""
    body = (
        Acquire("x", "a", "consume", 1),
        Acquire("z", "y", "produce", 1),
        Call("k", (Element("x", 0, KIND),)),
        Release("a", "consume", 1),
        Release("y", "produce", 1),
    )
    return For(var, Const(0), times, 1, body)


def same(a, b):
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in ("kinds", "ends", "counts", "work", "passed"))


def test_a_turn_is_its_costs():
    one = walked(passing(Const(1)))
    assert one.cycles == 5 + 7 + 7 + 100 + 1 + 1 and list(one.passed) == [1, 1]
    assert list(zip(one.kinds, one.ends, one.counts, one.work, strict=True)) == [(WAIT, 0, 1, 5.0), (GIVE, 1, 1, 121.0)]


def test_a_loop_is_its_turns():
    """What does not follow the variable is repeated, not walked; what does is walked turn by turn, and tells the same."""
    closed = walked(passing(Const(50)))
    opened = walked(*(passing(Const(1), f"i{n}") for n in range(50)))
    assert same(closed, opened) and closed.cycles == opened.cycles
    inner = passing(Binary("mul", Var("j"), Const(2)))
    nested = walked(For("j", Const(0), Const(4), 1, (inner,)))
    assert nested.passed[0] == 2 * (0 + 1 + 2 + 3)
    assert nested.cycles == 4 * 5 + 12 * 121
    assert same(closed.times(3), walked(*(passing(Const(50), f"i{n}") for n in range(3))))


def test_words_of_the_sequence_decide_how_often():
    load = Load("n", WORDS, Const(3))
    assert walked(load, passing(Var("n")), words={("words", 3): 9}).passed[0] == 9
    kept = (Store(WORDS, Const(0), Const(4)), Load("m", WORDS, Const(0)), passing(Var("m")))
    assert walked(*kept).passed[0] == 4
    choice = If(Binary("gt", Var("n"), Const(5)), (passing(Const(2)),), (passing(Const(3)),))
    assert [walked(load, choice, words={("words", 3): n}).passed[0] for n in (6, 5)] == [2, 3]


def test_what_is_held_is_not_taken_again():
    again = (Acquire("x", "a", "consume", 2), Acquire("x2", "a", "consume", 1), Release("a", "consume", 2))
    found = walked(*again)
    assert found.cycles == 7 + 1 and list(found.counts) == [2]


@pytest.mark.parametrize(("back", "stall"), [(50.0, 0.0), (119.0, 99.0)])
def test_one_buffer_makes_a_core_wait_for_the_next_object(back, stall):
    """Between a release and the next acquire a core works 20 cycles less than an object takes, or waits for nothing."""
    single = walked(passing(Const(10)), depths={0: 1, 1: 1})
    # From releasing one object to acquiring the next there are a release and a turn.
    between = 1 + 5
    assert single.stalled({0: back}).cycles == single.cycles + 9 * max(0.0, back - between)
    assert single.stalled({}) is single
    double = walked(passing(Const(10)), depths={0: 2, 1: 2})
    assert double.stalled({0: back}).cycles == double.cycles
