"""Graphs on `backend="sim"`: how an image enters its arrays, what lasts from call to call, and what a call may be given."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest

import iron_core as iron
from iron_core import bfloat16
from iron_core.declare.formats import Q4_1
from iron_core.errors import CallError, IronError, ShapeError, UnsupportedError
from iron_ops_aie import GEMV, Copy, ElementwiseAdd, SiLU
from iron_sim.errors import Deadlock, PoisonError, SimulationError
from iron_sim.executable import SimExecutable
from tests.sim.calls import Calls

DEVICES = ("npu1", "npu2")
ONE = np.ones(16, np.int32)


class Steps(iron.Graph):
    """One `Calls` after another, told apart by their tags."""

    def __init__(self, *tags, **fields):
        self.tags, self.fields = tags, fields

    def body(self, x):
        for tag in self.tags:
            x = Calls(x, tag=tag, **self.fields)
        return x


def compiled(*tags, dev="npu2", boundaries=None, size=16, **fields):
    return Steps(*tags, **fields).compile(backend="sim", dev=dev, boundaries=boundaries, x=((size,), np.int32))


def executable(run):
    """The one version of a compiled graph, loaded."""
    (version,) = run.versions.values()
    return version.load()


def seen(run, x=ONE):
    """By how much a call raised its input: the sum of what the steps' arrays had counted."""
    got = np.asarray(run(x)) - x
    assert (got == got[0]).all()
    return int(got[0])


# -- entries and resets ----------------------------------------------------------------------------


def test_a_full_elf_resets_the_array_at_every_call():
    run = compiled(0)
    assert [seen(run) for _ in range(3)] == [1, 1, 1]


@pytest.mark.parametrize(("dev", "boundaries"), [("npu1", None), ("npu2", iron.each_step)])
def test_a_chain_keeps_the_array_between_calls_of_one_design(dev, boundaries):
    run = compiled(0, dev=dev, boundaries=boundaries)
    assert [seen(run) for _ in range(3)] == [1, 2, 3]


@pytest.mark.parametrize(("dev", "boundaries"), [("npu1", None), ("npu2", iron.each_step)])
def test_a_chain_resets_the_array_where_the_design_changes(dev, boundaries):
    run = compiled(0, 1, dev=dev, boundaries=boundaries)
    assert [seen(run) for _ in range(3)] == [2, 2, 2]


def test_consecutive_steps_of_one_array_share_an_entry():
    """In a full ELF; the third step is another array, the fourth the first again."""
    run = compiled(0, 0, 1, 0)
    image = executable(run).image
    assert image.entries == ((0, 1), (2,), (3,)) and image.resets == 1
    assert image.steps[0].design.array is image.steps[3].design.array
    assert [seen(run) for _ in range(2)] == [1 + 2 + 1 + 1] * 2


def test_a_chain_enters_every_step_apart():
    image = executable(compiled(0, 0, 1, boundaries=iron.each_step)).image
    assert image.entries == ((0,), (1,), (2,)) and image.resets == 0


class Kinds(iron.Graph):
    """`Calls` of one array and, by their kinds, of several designs."""

    def __init__(self, *kinds):
        self.kinds = kinds

    def body(self, x):
        for kind in self.kinds:
            x = Calls(x, kind=kind)
        return x


def test_a_chain_has_as_many_designs_as_a_context_takes():
    """32; the next begins another xclbin, whose array is set up anew. A design that is met again stays where it is."""
    run = Kinds(*range(33), 5).compile(backend="sim", dev="npu1", x=((16,), np.int32))
    image = executable(run).image
    assert image.chains == ((*range(32), 33), (32,))
    assert [seen(run) for _ in range(2)] == [sum(range(1, 33)) + 1 + 1, sum(range(2, 34)) + 1 + 1]
    assert "chain      2 xclbins of 32 and 1 designs" in run.explain()
    whole = Kinds(*range(32)).compile(backend="sim", dev="npu1", x=((16,), np.int32))
    assert executable(whole).image.chains == (tuple(range(32)),) and "chain      1 xclbin" in whole.explain()
    assert executable(Kinds(*range(33)).compile(backend="sim", dev="npu2", x=((16,), np.int32))).image.chains == ()


@pytest.mark.parametrize(("tags", "resets"), [((0,), 1), ((0, 1), 0), ((0, 1, 2), 1), ((0, 0), 1)])
def test_an_odd_number_of_entries_needs_one_more_reset(tags, resets):
    """Two empty images are loaded in turn; the firmware takes a second load of the same one for none."""
    run = compiled(*tags)
    exe = executable(run)
    assert exe.image.resets == resets
    assert seen(run) == seen(run)
    lacking = SimExecutable(attrs.evolve(exe.image, resets=0), exe.memory)
    lacking.run([ONE], [np.zeros_like(ONE)], {})
    if resets:
        with pytest.raises(SimulationError, match=r"entry 0 loads the empty image 0 again: the firmware skips it .* one more empty"):
            lacking.run([ONE], [np.zeros_like(ONE)], {})
    else:
        lacking.run([ONE], [np.zeros_like(ONE)], {})


def test_a_call_that_fails_leaves_an_array_that_is_set_up_anew():
    """Each call says what is wrong with it, not with the one before."""
    for boundaries in (None, iron.each_step):
        run = compiled(0, boundaries=boundaries, size=32, fails=True)
        for _ in range(2):
            with pytest.raises(Deadlock, match=r"step calls0: Calls on npu2 cannot go on:"):
                run(np.ones(32, np.int32))


@pytest.mark.parametrize("dev", DEVICES)
def test_a_call_that_is_interrupted_leaves_an_array_that_is_set_up_anew(dev, monkeypatch):
    """Ctrl-C in the middle of a kernel: the next call is as the first one was."""
    run = compiled(0, 0, 1, dev=dev)
    first = seen(run)

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("iron_sim.core.store", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(ONE)
    assert seen(run) == first


def test_statistics_are_kept_by_step():
    run = compiled(0, 1, size=64)
    run(np.ones(64, np.int32))
    stats = executable(run).stats
    assert list(stats) == ["calls0", "calls1"]
    assert {(s.calls, s.elements("x"), s.elements("y")) for s in stats.values()} == {(4, 64, 64)}


# -- what lasts ------------------------------------------------------------------------------------


class Log(iron.Graph):
    """Writes its input into row `at` of a state and hands back the first `n` rows, activated."""

    def __init__(self):
        self.rows = iron.state((8, 64), name="rows")

    def body(self, x, *, at: iron.Scratchpad[np.int32], n: iron.Scratchpad[np.int32]):
        Copy(x, self.rows[at])
        return SiLU(self.rows[:n])


@pytest.mark.parametrize("dev", DEVICES)
def test_states_last_and_bounds_cut(dev):
    """Rows written by earlier calls are read by later ones; the output has as many rows as the call asks for."""
    run = Log().compile(backend="sim", dev=dev, x=(64,))
    kept = np.zeros((8, 64), bfloat16)
    rng = np.random.default_rng(0)
    for at, n in ((0, 1), (7, 8), (3, 4), (3, 1), (1, 6)):
        kept[at] = rng.standard_normal(64).astype(bfloat16)
        got = np.asarray(run(kept[at], at=at, n=n))
        assert got.shape == (n, 64)
        want = SiLU(size=n * 64, tile_size=64).composed(kept[:n])
        assert got.tobytes() == np.ascontiguousarray(want).reshape(n, 64).tobytes()
    assert np.asarray(run.read("rows")).tobytes() == kept.tobytes()


def test_states_are_read_and_written_from_outside():
    run = Log().compile(backend="sim", dev="npu2", x=(64,))
    run.write("rows", np.full((8, 64), 2, bfloat16))
    got = np.asarray(run(np.zeros(64, bfloat16), at=0, n=2))
    assert not got[0].any() and (got[1] == got[1][0]).all() and got[1][0] > 1.5


class Walk(iron.Graph):
    """Adds row `at` of a table to a sum, and goes two rows on."""

    def __init__(self):
        self.total = iron.state((64,), name="total")
        self.table = iron.weight((np.arange(16 * 64).reshape(16, 64) / 64).astype(bfloat16), name="table")

    def body(self, *, at: iron.Carried[np.int32]):
        ElementwiseAdd(self.total, Copy(self.table[at]), self.total)
        return iron.carry(at=at + 2)


@pytest.mark.parametrize("dev", DEVICES)
def test_carried_values_go_from_call_to_call(dev):
    """By hand and in a loop: the same sum, and the same last value."""
    walks = [Walk().compile(backend="sim", dev=dev) for _ in range(2)]
    at = 1
    for _ in range(4):
        (carried,) = walks[0](at=at)
        at = carried.at
    assert at == 9 == walks[1].loop(4, at=1)["at"]
    want = np.zeros(64, bfloat16)
    for row in (1, 3, 5, 7):
        want = (want.astype(np.float32) + np.asarray(walks[0].read("table"))[row].astype(np.float32)).astype(bfloat16)
    for walk in walks:
        assert np.asarray(walk.read("total")).tobytes() == want.tobytes()


def test_a_loop_ends_early_where_it_is_told_to():
    walk = Walk().compile(backend="sim", dev="npu2")
    told = []

    def on_step(index, carried):
        told.append((index, carried["at"]))
        return index == 1

    assert walk.loop(5, at=0, on_step=on_step)["at"] == 4
    assert told == [(0, 2), (1, 4)]


def test_two_versions_share_their_states():
    """One graph, two shapes: what one writes the other reads."""

    class Sum(iron.Graph):
        def __init__(self):
            self.kept = iron.state((64,), name="kept")

        def body(self, x):
            if x.shape == (64,):
                ElementwiseAdd(self.kept, x, self.kept)
                return Copy(self.kept)
            return ElementwiseAdd(self.kept, Copy(x[:64]))

    graph = Sum()
    graph.compile(backend="sim", dev="npu2", x=(64,))
    run = graph.compile(backend="sim", dev="npu2", x=(128,))
    assert len(run.versions) == 2
    run(np.ones(64, bfloat16))
    assert (np.asarray(run(np.ones(128, bfloat16))) == 2).all()


# -- what a call may be given ----------------------------------------------------------------------


class First(iron.Graph):
    def body(self, x, *, n: iron.Scratchpad[np.int32]):
        return SiLU(x[:n])


def test_an_input_may_be_cut_to_its_bound():
    """What is moved beyond it, a line per column, reaches no row that is returned: the same output."""
    run = First().compile(backend="sim", dev="npu2", x=(32, 64))
    x = np.random.default_rng(1).standard_normal((32, 64)).astype(bfloat16)
    for n in (1, 5, 32):
        assert np.asarray(run(x[:n], n=n)).tobytes() == np.asarray(run(x, n=n)).tobytes()
    assert len(run.versions) == 1


def test_an_input_of_another_length():
    """Neither whole nor cut to this call's bound."""
    (version,) = First().compile(backend="sim", dev="npu2", x=(8, 64)).versions.values()
    with pytest.raises(ShapeError, match=r"input `x` has shape \(4, 64\); it takes \(8, 64\) or, cut to this .*, \(5, 64\)"):
        version.call([np.ones((4, 64), bfloat16)], {"n": 5})


class Rows(iron.Graph):
    def body(self, x, *, n: iron.Scratchpad[np.int32]):
        return Copy(x[:n])


def test_packed_rows_are_cut_like_any_other():
    """A block format moves as bytes; rows past the bound are neither needed nor returned."""
    packed = Q4_1.quantize(np.random.default_rng(0).standard_normal((8, 512)).astype(np.float32))
    run = Rows().compile(backend="sim", dev="npu2", x=((8, 512), Q4_1))
    for n in (3, 8, 1):
        for given in (packed, packed[:n]):
            got = run(given, n=n)
            assert got.shape == (n, 512) and got.data.tobytes() == packed.data[:n].tobytes()
    assert len(run.versions) == 1


class Last(iron.Graph):
    """Carries the last number of what an array made."""

    def __init__(self, **fields):
        self.fields = fields

    def body(self, x, *, at: iron.Carried[np.int32]):
        return iron.carry(at=Copy(Calls(x, **self.fields)[31:]))


def test_a_number_is_carried_out_of_a_tensor():
    run = Last().compile(backend="sim", dev="npu2", x=((32,), np.int32))
    (carried,) = run(np.arange(32, dtype=np.int32), at=0)
    assert carried.at == 31 + 2


def test_a_number_that_nobody_wrote_is_not_carried():
    run = Last(half=True).compile(backend="sim", dev="npu2", x=((32,), np.int32))
    with pytest.raises(PoisonError, match="the carried value at is read from data nobody wrote"):
        run(np.arange(32, dtype=np.int32), at=0)


def test_a_packed_weight_is_given_whole():
    """An array moves a block format as bytes, or says that it takes none."""

    class Product(iron.Graph):
        def __init__(self, weight):
            self.w = weight

        def body(self, x):
            return GEMV(self.w, x)

    weight = Q4_1.quantize(np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32))
    with pytest.raises(UnsupportedError, match=r"GEMV.*bfloat16|GEMV.*q4_1|GEMV.*Q4_1"):
        Product(weight).compile(backend="sim", dev="npu2", x=(64,))


def test_an_input_is_the_array_that_it_makes():
    """Not the shape that it says it has; and what was there stays where write() is refused."""

    class Says:
        shape, dtype = (16,), np.dtype(np.int32)

        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return np.ones(8, np.int32)

    class Held(iron.Graph):
        def __init__(self) -> None:
            self.s = iron.state((16,), np.int32)

        def body(self, x: Any) -> Any:
            Copy(x, self.s)
            return Copy(self.s)

    graph = Held().compile(backend="sim", dev="npu2", x=((16,), np.int32))
    version = next(iter(graph.versions.values()))
    assert graph(ONE).tolist() == [1] * 16
    with pytest.raises(ShapeError, match=r"input `x` has shape \(8,\); it takes \(16,\)"):
        version.call([Says()], {})
    with pytest.raises(CallError, match="input `x` is int32; got float32"):
        version.call([np.ones(16, np.float32)], {})
    for bad in (np.full(16, np.nan), np.ones(16, complex), Says()):
        with pytest.raises(IronError, match=r"^s is "):
            graph.write("s", bad)
    assert graph.read("s").tolist() == [1] * 16
