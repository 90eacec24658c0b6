"""`image=iron.CONTEXTS`: every array is loaded once, in a context of its own, and stays; a chain loads arrays in turn."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import iron_core as iron
from iron_core import bfloat16
from iron_core.devices import Device, device
from iron_core.errors import UnsupportedError
from iron_core.image.array_image import freeze, thaw
from iron_ops_aie import GEMM, GEMV, Copy, ElementwiseAdd, SiLU
from iron_sim.backend import SimBackend
from iron_sim.errors import Deadlock
from tests.sim.calls import Calls

CHAIN = {"boundaries": iron.each_step}
CONTEXTS = {"image": iron.CONTEXTS}
ONE = np.ones(16, np.int32)


class Steps(iron.Graph):
    """One `Calls` after another; of an input of 32 numbers, the second list's."""

    def __init__(self, tags, more=(), **fields):
        self.tags, self.more, self.fields = tags, more, fields

    def body(self, x):
        for tag in self.tags if x.shape == (16,) else self.more:
            x = Calls(x, tag=tag, **self.fields)
        return x


def compiled(tags, more=(), dev="npu2", size=16, packaging=CONTEXTS, **fields):
    return Steps(tags, more, **fields).compile(backend="sim", dev=dev, x=((size,), np.int32), **packaging)


def seen(run, x=ONE):
    """By how much a call raised its input: the sum of what the steps' arrays had counted."""
    got = np.asarray(run(x)) - x
    return int(got[0])


def test_four_arrays_are_loaded_four_times_however_often_they_are_called():
    """A chain loads each at every switch: four a call."""
    calls = 25
    chain, contexts = (compiled(range(4), packaging=packaging) for packaging in (CHAIN, CONTEXTS))
    assert chain.traffic.loads == contexts.traffic.loads == 0, "nothing is loaded before the first call"
    for run in (chain, contexts):
        run.load()
    assert (chain.traffic.loads, contexts.traffic.loads) == (0, 4)
    for _ in range(calls):
        chain(ONE), contexts(ONE)
    assert (chain.traffic.loads, contexts.traffic.loads) == (4 * calls, 4)


def test_a_full_elf_loads_an_array_per_entry():
    run = compiled(range(4), packaging={})
    for calls in (1, 2, 3):
        run(ONE)
        assert run.traffic.loads == 4 * calls


@pytest.mark.parametrize("dev", ["npu1", "npu2"])
def test_an_array_stays_as_it_is_between_its_steps(dev):
    """Whatever other arrays do meanwhile; steps of one array share its context."""
    run = compiled((0, 1, 0, 2), dev=dev)
    (version,) = run.versions.values()
    assert version.image.contexts == ((0, 2), (1,), (3,)) and version.image.chains == ()
    assert version.image.entries == ((0,), (1,), (2,), (3,)), "every step is a dispatch"
    assert [seen(run) for _ in range(2)] == [1 + 1 + 2 + 1, 3 + 2 + 4 + 2]
    assert run.traffic.loads == 3


def test_it_is_told():
    """Which arrays, for how many steps each, and why."""
    text = compiled((0, 1, 0)).explain()
    assert "image      contexts, separate dispatch" in text
    assert "image='contexts' asks for one xclbin per array, each in a hardware context of its own" in text
    assert "contexts   2, each an xclbin that stays loaded, one dispatch per step: Calls (of 2 steps), Calls (of 1 step)" in text
    assert "chain " not in text


def test_versions_of_a_graph_share_contexts():
    """Arrays that are equal are loaded once for all of them, and go with the last version that has them."""
    run = compiled((0, 1), (1, 2))
    run.add(x=((32,), np.int32))
    assert seen(run) == 2 and run.traffic.loads == 2
    run(np.ones(32, np.int32))
    assert run.traffic.loads == 3 and seen(run) == 2 + 4, "array 1 has seen one object before, and two of the other version"


def test_a_device_holds_so_many():
    """Of all versions together; what is legal is said."""
    assert (device("npu1").contexts, device("npu2").contexts) == (6, 8)
    assert compiled(range(8))(ONE)[0] == 1 + 8
    with pytest.raises(UnsupportedError, match=r"Steps: image='contexts' with 9 arrays, .* npu2 holds 8 at once \(9 of Calls\)\. Legal: "):
        compiled(range(9))
    with pytest.raises(UnsupportedError, match=r"with 7 arrays, .* npu1 holds 6 at once .* no image=, which loads them in turn"):
        compiled(range(7), dev="npu1")
    run = compiled(range(5), range(4, 9))
    with pytest.raises(UnsupportedError, match="with 9 arrays"):
        run.add(x=((32,), np.int32))
    assert len(run.versions) == 1 and run(ONE)[0] == 1 + 5, "the version that was there goes on"
    assert len(compiled(range(40), packaging=CHAIN).versions) == 1


def test_a_call_that_fails_leaves_arrays_that_are_set_up_anew():
    """Each call says what is wrong with it, not with the one before."""
    run = compiled((), (0, 1), size=32, fails=True)
    for loads in (2, 3):
        with pytest.raises(Deadlock, match=r"step calls0: Calls on npu2 cannot go on:"):
            run(np.ones(32, np.int32))
        assert run.traffic.loads == loads


def test_an_image_of_contexts_goes_through_the_cache():
    run = compiled((0, 1, 0))
    (version,) = run.versions.values()
    image = thaw(freeze(version.image))
    assert image is not None and image.contexts == version.image.contexts
    made = np.zeros_like(ONE)
    SimBackend().load(image, run._program.memory()).run([ONE], [made], {})
    assert (made == 1 + 1 + 1 + 2).all()


class Layer(iron.Graph):
    """Four products, a cache that is written at a position, and bounds: what calls change is given dispatch by dispatch."""

    def __init__(self):
        rng = np.random.default_rng(0)
        self.wide, self.narrow = ((rng.standard_normal(s) / 8).astype(bfloat16) for s in ((128, 64), (64, 128)))
        self.w = (rng.standard_normal((64, 64)) / 8).astype(bfloat16)
        self.rows = iron.state((64, 64))

    def body(self, x, many, *, at: iron.Scratchpad[np.int32], n: iron.Scratchpad[np.int32]):
        Copy(GEMV(self.narrow, GEMV(self.wide, x)), self.rows[at])
        return ElementwiseAdd(self.rows[:n], SiLU(self.rows[:n])), GEMM(many[:n], self.w)


@pytest.mark.parametrize("dev", ["npu1", "npu2"])
def test_no_packaging_changes_a_bit(dev):
    """Contexts, a chain and, where there is one, a full ELF, called again and again."""
    rng = np.random.default_rng(1)
    graph = Layer()
    ways = [CONTEXTS, CHAIN, {}]
    runs = [graph.compile(backend="sim", dev=dev, x=(64,), many=(64, 64), **way) for way in ways]
    for at, n in ((0, 1), (3, 64), (9, 10)):
        x, many = (rng.standard_normal(s).astype(bfloat16) for s in ((64,), (64, 64)))
        got = [[np.asarray(t).tobytes() for t in run(x, many, at=at, n=n)] for run in runs]
        assert got[0] == got[1] == got[2] and len(got[0]) == 2
    arrays = len({step.design.array for step in next(iter(runs[0].versions.values())).image.steps})
    assert runs[0].traffic.loads == arrays < runs[1].traffic.loads


class Sized(iron.Graph):
    def body(self, x, *, n: iron.DispatchTime[np.int32]):
        return SiLU(x[:n], tile_size=64, num_aie_columns=1)


def test_a_number_that_shapes_follow_is_given_at_each_dispatch():
    """Its versions are sequences for one array, which is loaded once."""
    run = Sized().compile(backend="sim", dev="npu2", x=(32, 64), n=8, **CONTEXTS)
    x = np.random.default_rng(2).standard_normal((32, 64)).astype(bfloat16)
    for n in (8, 32, 16):
        assert np.asarray(run(x, n=n)).shape == (n, 64)
    assert len(run.versions) == 3 and run.traffic.loads == 1
    assert "regenerated at each dispatch" in run.explain()


class Tagged(iron.Graph):
    """An array of its own for every number."""

    def body(self, x, *, n: iron.DispatchTime[np.int32]):
        return Calls(x, tag=n)


def test_a_version_that_is_dropped_gives_its_context_back():
    """A graph keeps the versions of eight numbers, which is as many arrays as npu2 holds: a ninth takes the place of the first."""
    run = Tagged().compile(backend="sim", dev="npu2", x=((16,), np.int32), n=0, **CONTEXTS)
    for n in range(10):
        assert run(ONE, n=n)[0] == 2
    gc.collect()
    assert len(run._program.memory().contexts) == len(run.versions) == len(run.plan.versions) == 8
    assert run(ONE, n=9)[0] == 3 and run(ONE, n=0)[0] == 2 and run.traffic.loads == 11


def test_one_operator_by_itself():
    image = iron.OperatorImage(Calls(size=16), backend="sim", dev="npu2", image=iron.CONTEXTS)
    assert [int(image(ONE)[0]) for _ in range(3)] == [2, 3, 4] and image.traffic.loads == 1


def test_a_device_that_says_nothing_holds_one():
    """What every device has."""
    assert Device(name="bare", family="npu2", arch="AIE2P", columns=1).contexts == 1
