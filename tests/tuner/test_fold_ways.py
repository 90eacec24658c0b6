"""Folds under a cost table: each way of folding is priced, and steps are folded only where the time drops."""

from __future__ import annotations

import numpy as np
import pytest

import iron_core as iron
from iron_core import bfloat16
from iron_core.graph.fold import find_folds
from iron_ops_aie import GEMV, ElementwiseAdd, ElementwiseMul, RMSNorm, SiLU
from iron_tuner import folds as fold_search
from iron_tuner.cost_table import cost_key
from iron_tuner.instance import sketch
from iron_tuner.kinds import NarrowingKinds
from iron_tuner.model import Constants
from iron_tuner.narrowing import JointNarrowing
from iron_tuner.ways import Folding
from tests.tuner.tables import BASE, DISPATCH, RESET, SIZE, Turns, elf_us, empty, of_turns, step

KNOWN = Constants(DISPATCH, BASE, RESET)
SHAPES = dict(x=(SIZE,), y=(SIZE,))
FOLDS = NarrowingKinds(widths=False, packs=False)


def compiled(graph, narrowing=None, **options):
    shapes = {} if "x" in options else SHAPES
    return graph.compile(backend="sim", dev="npu2", coresident=narrowing, **shapes, **options)


def version(of):
    return next(iter(of.versions.values()))


def asked(graph, **options):
    """What a narrowing is asked about."""
    return version(compiled(graph, JointNarrowing(empty()), **options)).tuning.asked


def folded(us: float, load: float):
    """A table of `Turns` in which the addition with a SiLU behind it takes this."""
    table, turns = of_turns(), asked(Turns())
    folding = Folding(turns)
    for one in folding.way(folding.taken(frozenset())).steps.values():
        if cost_key(one.op, "npu2") not in table.steps:
            table.add_step(cost_key(one.op, "npu2"), step(us, load))
    return table


def test_a_fold_is_taken_where_the_time_drops():
    """Each SiLU into the addition before it: one array is entered once, by the model and in the image."""
    tuned = compiled(Turns(), JointNarrowing(folded(9.0, 90.0), FOLDS))
    found = version(tuned).tuning
    assert found.folds == ("SiLU into the finish of ElementwiseAdd: 3 times",)
    assert found.predicted_us == pytest.approx(elf_us(KNOWN, [9] * 3, [[90]]))
    assert [one.name for one in version(tuned).image.steps] == ["elementwiseadd0", "elementwiseadd1", "elementwiseadd2"]
    assert found.configures == len(version(tuned).image.entries) == 1
    assert "fold SiLU into the finish of ElementwiseAdd: 3 times" in found.report()
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(SIZE).astype(bfloat16) for _ in "xy"]
    assert np.asarray(tuned(*given)).tobytes() == np.asarray(compiled(Turns())(*given)).tobytes()


def test_a_fold_is_left_where_it_does_not():
    """A step that takes longer than both, or an array that is slow to load."""
    for table in (folded(500.0, 90.0), folded(9.0, 900.0)):
        found = version(compiled(Turns(), JointNarrowing(table, FOLDS))).tuning
        assert not found.folds and found.predicted_us == found.baseline_us and found.gap == 0.0


def test_folds_are_left_to_the_compile_where_they_are_not_decided():
    """`NarrowingKinds(folds=False)`: all of them or none, as `fold=` asks for; what was asked for is the baseline, too."""
    table = folded(500.0, 90.0)
    kinds = NarrowingKinds(False, False, False)
    for fold in (False, True):
        tuned = compiled(Turns(), JointNarrowing(table, kinds), fold=fold)
        assert len(version(tuned).plan.folds) == 3 * fold
        assert version(tuned).tuning.predicted_us == version(tuned).tuning.baseline_us
    undone = version(compiled(Turns(), JointNarrowing(table, FOLDS), fold=True))
    assert not undone.plan.folds and undone.tuning.baseline_us > undone.tuning.predicted_us + 800


def test_a_way_with_a_design_that_is_not_in_the_table_is_not_priced():
    """It is said, with the design that is missing, and the steps stay apart."""
    found = version(compiled(Turns(), JointNarrowing(of_turns(), FOLDS))).tuning
    assert not found.folds
    assert found.unpriced == (
        "1 way of folding: ElementwiseAdd(size=2048) with finish SiLU is not in the cost table",
        "1 way of folding: SiLU(size=2048) with finish ElementwiseAdd is not in the cost table",
    )
    assert all(f"not priced: {one}" in found.report() for one in found.unpriced)


class Layer(iron.Graph):
    """Folds of several kinds, some of which exclude others."""

    def __init__(self):
        rng = np.random.default_rng(1)
        self.gate, self.up, self.down = (rng.standard_normal(shape).astype(bfloat16) for shape in ((256, 64), (256, 64), (64, 256)))
        self.norm = rng.standard_normal(64).astype(bfloat16)

    def body(self, x):
        for _ in range(2):
            n = RMSNorm(x.reshape(1, 64), weight=self.norm).reshape(64)
            x = ElementwiseAdd(x, GEMV(self.down, ElementwiseMul(SiLU(GEMV(self.gate, n)), GEMV(self.up, n))))
        return x


@pytest.fixture(scope="module")
def layer():
    return Folding(asked(Layer(), x=(64,)))


def test_folds_of_one_kind_are_taken_together(layer):
    """Both layers' or none: a kind is told by what it folds where, not by the step."""
    ways, exhaustive = layer.all()
    assert exhaustive and () in ways and len(ways) == len({tuple(map(str, one)) for one in ways}) > 8
    there = [layer.kind(fold) for fold in find_folds(layer.asked.traced)]
    assert {there.count(kind) for kind in layer.kinds} == {2}
    for kind in layer.kinds:
        assert [layer.kind(fold) for fold in layer.only([kind])] in ([], [kind] * 2)


def test_a_way_runs_what_its_image_runs(layer):
    """The same steps in the same order, and equal identities are equal designs: what it is priced by is what is made."""
    for folds in layer.all()[0][::5]:
        one = layer.way(folds)
        assert [run.name for run in one.runs] == [step.name for step in one.image.steps]
        designs = {}
        for run in one.runs:
            assert designs.setdefault(run.identity, cost_key(one.steps[run.name].op, "npu2")) == cost_key(one.steps[run.name].op, "npu2")


def test_many_ways_are_weighed_one_kind_at_a_time(layer):
    """Where they are more than are looked at: the kinds that pay by themselves, as long as the time drops; the report says so."""
    prices = {}

    class Fake:
        def __init__(self, folds):
            self.folds, self.us = folds, 100.0 - sum(gains[layer.kind(fold)] for fold in folds)

    gains = {kind: 10.0 - 3 * number for number, kind in enumerate(layer.kinds)}

    def price(folds):
        found = Fake(folds)
        prices[folds] = found
        found.partition = type("P", (), {"bound_us": found.us})()
        found.instance = type("I", (), {"keys": {}, "arrays": ()})()
        return found

    ways = fold_search.best_way(layer, price, (), runs=2)
    assert not ways.exhaustive
    assert ways.best.us == min(one.us for one in prices.values())
    assert {layer.kind(fold) for fold in ways.best.folds} <= {kind for kind, gain in gains.items() if gain > 0}
    everything = fold_search.best_way(layer, price, ())
    assert everything.exhaustive and everything.best.us <= ways.best.us


def test_a_sketch_is_the_image_without_what_that_inserts(layer):
    """Ways are compared by sketches; the one that is taken is counted as its image."""
    from iron_core.backends.choose import get
    from iron_tuner.designs import Designs
    from iron_tuner.fits import Fits
    from iron_tuner.instance import instance
    from tests.tuner.tables import NPU2

    designs = Designs(empty(), NPU2, get("sim"), NarrowingKinds(), 2.0, Fits())
    one = layer.way(layer.taken(frozenset()))
    assert sketch(one, designs).problem.arrivals == instance(one, designs).problem.arrivals
