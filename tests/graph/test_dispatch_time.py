"""`DispatchTime` values: numbers that a body sees as they are, so sizes, strides and offsets follow them."""

from __future__ import annotations

import numpy as np
import pytest

import iron_core as iron
from iron_core import bfloat16
from iron_core.errors import BoundsError, CallError, ShapeError, UnsupportedError
from iron_core.graph.signature import KEPT
from iron_ops_aie import Copy, ElementwiseAdd, SiLU

PLACES = [("reference", None), ("host", None), ("sim", "npu1"), ("sim", "npu2")]


class Tail(iron.Graph):
    """Rows n and on of x, n numbers to a row, with what the calls before left in the state added to the first of them."""

    def __init__(self):
        self.seen = iron.state((1, 64))

    def body(self, x, *, n: iron.DispatchTime[np.int32]):
        rest = Copy(x[n:], tile_size=64)
        first = ElementwiseAdd(Copy(x[n : n + 1]), Copy(self.seen[:]))
        Copy(first, self.seen[:])
        turned = Copy(rest.reshape(-1, 16 * n, 4).transpose(1, 0, 2))
        return rest, turned, first


@pytest.fixture
def x(rng):
    return rng.integers(-9, 9, (9, 64)).astype(bfloat16)


def want(x, n, seen):
    rest = x[n:]
    return rest, rest.reshape(-1, 16 * n, 4).transpose(1, 0, 2), x[n : n + 1] + seen


@pytest.mark.parametrize(("backend", "dev"), PLACES, ids=lambda p: str(p))
def test_shapes_and_views_follow_the_number(backend, dev, x):
    """Every call has shapes of its own; what it leaves in a state the next finds, whatever its number."""
    compiled = Tail().compile(backend=backend, dev=dev, x=x.shape, n=3)
    seen = np.zeros((1, 64), bfloat16)
    for n in (1, 3, 1):
        *made, seen = want(x, n, seen)
        got = compiled(x, n=n)
        for g, w in zip(got, (*made, seen), strict=True):
            assert np.array_equal(g.astype(np.float32), w.astype(np.float32).reshape(g.shape))
        assert got[0].shape == (9 - n, 64)


def test_the_reference_run_has_them_too(x):
    graph, seen = Tail(), np.zeros((1, 64), bfloat16)
    for n in (1, 3, 1):
        *_, seen = want(x, n, seen)
        assert np.array_equal(graph.reference(x, n=n)[2].astype(np.float32), seen.astype(np.float32))


def test_arrays_do_not_follow_it(x):
    """They have no extents: another number makes another sequence for the array that is there."""
    compiled = Tail().compile(backend="sim", dev="npu1", x=x.shape, n=1)
    compiled(x, n=3)
    one, other = (version.image.steps for version in compiled.versions.values())
    assert [step.design.array is again.design.array for step, again in zip(one, other, strict=True)].count(True) >= 3
    assert one[0].design.array is other[0].design.array and one[0].design.sequence != other[0].design.sequence


def test_another_number_is_nothing_to_announce(x, capsys):
    """Only the first version of new shapes is; the last few numbers' are kept."""
    compiled = Tail().compile(backend="host")
    assert not compiled.versions
    for n in (1, 2, 1, 4):
        compiled(x[:8] if n > 1 else x, n=n)
    assert capsys.readouterr().err.count("compiling a version") == 2

    class Start(iron.Graph):
        def body(self, x, *, n: iron.DispatchTime[np.int32]):
            return Copy(x[:n])

    many = Start().compile(backend="host", x=(20, 8), n=1)
    tensor = np.ones((20, 8), bfloat16)
    for n in range(1, 20):
        assert many(tensor, n=n).shape == (n, 8)
    assert len(many.versions) == KEPT == len(many.plan.versions)


def test_a_body_may_branch_on_it():
    """It is a number, not an expression."""

    class Either(iron.Graph):
        def body(self, x, *, n: iron.DispatchTime[np.int32]):
            return SiLU(x) if n > 2 else Copy(x)

    x = np.ones((4,), np.float32)
    compiled = Either().compile(backend="host", x=(x.shape, x.dtype), n=1)
    assert compiled(x, n=2).tolist() == [1] * 4 and compiled(x, n=3)[0] < 1
    assert [type(v.plan.steps[0].op).__name__ for v in compiled.versions.values()] == ["Copy", "Copy", "SiLU"]


def test_loops_hold_it_fixed():
    """A carried value may step by it."""

    class Walk(iron.Graph):
        def body(self, *, at: iron.Carried[np.int32], by: iron.DispatchTime[np.int32]):
            return iron.carry(at=at + by)

        def __init__(self):
            self.kept = iron.state((4,))

    class Steps(Walk):
        def body(self, *, at: iron.Carried[np.int32], by: iron.DispatchTime[np.int32]):
            Copy(SiLU(self.kept), self.kept[:])
            return iron.carry(at=at + by)

    compiled = Steps().compile(backend="host", by=2)
    assert compiled.loop(3, at=1, by=2) == {"at": 7} and compiled.loop(2, at=0, by=10) == {"at": 20}


def test_it_is_a_dispatch_a_step(x):
    """Sequences made anew need a chain; a full ELF is refused."""
    assert Tail().compile(backend="null", dev="npu2", x=x.shape, n=1).packaging.image == "xclbin"
    with pytest.raises(UnsupportedError, match="DispatchTime value `n` regenerates the sequence"):
        Tail().compile(backend="null", dev="npu2", image=iron.ELF, x=x.shape, n=1)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda g, x: g.compile(backend="host", x=x.shape), CallError, "needs a number for n, a DispatchTime value"),
        (lambda g, x: g.compile(backend="host", x=x.shape, n=1)(x), CallError, "needs a number for n"),
        (lambda g, x: g.trace(x=x.shape, n="3"), CallError, "n='3': a per-call value is a whole number"),
        (lambda g, x: g.compile(backend="host", x=x.shape, n=1)(x, n=9), BoundsError, "slice 9:None on axis 0 .* is empty"),
        (lambda g, x: g.compile(backend="host", x=x.shape, n=1)(x, n=7), ShapeError, "reshape"),
        (lambda g, x: g.compile(backend="host", x=x.shape, n=1)(x, n=1, m=2), CallError, "takes no m="),
    ],
)
def test_what_is_refused(call, error, words, x):
    with pytest.raises(error, match=words):
        call(Tail(), x)
