"""`JointNarrowing` as `coresident=`: what it decides, the model it decides by, and that it changes no bit."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

import iron_core as iron
from iron_core import bfloat16
from iron_ops_aie import ElementwiseAdd, SiLU
from iron_tuner.cost_table import CostTable, Point, cost_key
from iron_tuner.errors import CostError
from iron_tuner.kinds import NarrowingKinds
from iron_tuner.model import Constants
from iron_tuner.narrowing import JointNarrowing
from tests.tuner.tables import (
    BASE,
    DISPATCH,
    HELD,
    RESET,
    SIZE,
    Turns,
    add,
    by_columns,
    chain_us,
    elf_us,
    empty,
    fill,
    of_turns,
    pack,
    silu,
    step,
)

WIDTHS = NarrowingKinds(folds=False, packs=False)
PACKS = NarrowingKinds(folds=False)
KNOWN = Constants(DISPATCH, BASE, RESET)
SHAPES = dict(x=(SIZE,), y=(SIZE,))


def compiled(graph, narrowing=None, dev="npu2", **options):
    return graph.compile(backend="sim", dev=dev, coresident=narrowing, **{**SHAPES, **options})


def version(of):
    return next(iter(of.versions.values()))


def columns(of):
    """Per step of what runs, how many columns it has; planned, so that packs do not hide it."""
    return [step.op.resolved("npu2").num_aie_columns for step in version(of).plan.steps]


def columns_of(narrowing):
    return columns(compiled(Turns(), narrowing))


def drawn():
    rng = np.random.default_rng(0)
    return [rng.standard_normal(SIZE).astype(bfloat16) for _ in "xy"]


@pytest.fixture(scope="module")
def table():
    return of_turns()


@pytest.fixture(scope="module")
def untuned():
    return compiled(Turns())


def test_without_it_nothing_changes(untuned):
    assert version(untuned).tuning is None
    assert len(version(untuned).image.entries) == 6 and set(columns(untuned)) == {8}
    assert "tuned" not in untuned.explain()


def test_arrays_in_turn_are_narrowed_and_share_a_configuration(table, untuned):
    """One entry instead of six; the model's times are those of `elf_us`, and of the image that is made; the bits stay."""
    tuned = compiled(Turns(), JointNarrowing(table))
    found = version(tuned).tuning
    assert columns(tuned) == [4, 8] * 3, "both wide would take more channels than the shims have"
    assert len(version(tuned).image.entries) == found.configures == found.devices == 1
    assert found.predicted_us == pytest.approx(elf_us(KNOWN, [12, 4] * 3, [[99, 80]]))
    assert found.baseline_us == pytest.approx(elf_us(KNOWN, [8, 4] * 3, [[100], [80]] * 3))
    assert found.gap == 0.0 and not found.unmeasured and not found.inexact
    for _ in range(2):
        assert np.asarray(tuned(*drawn())).tobytes() == np.asarray(untuned(*drawn())).tobytes()


def test_the_report_says_what_was_decided(table):
    """And `explain()` has its lines."""
    tuned = compiled(Turns(), JointNarrowing(table))
    report = version(tuned).tuning.report()
    assert "ElementwiseAdd(size=2048): num_aie_columns 8 -> 4; 3 steps (elementwiseadd0, elementwiseadd1, elementwiseadd2)" in report
    assert "pack of ElementwiseAdd, SiLU: 1 entry instead of 6" in report
    assert "model: 339.0 us with 1 entry of 1 configuration, instead of 813.0 us with 6; nothing is faster by the table" in report
    assert all(f"tuned      {line}" in tuned.explain() for line in report.splitlines())


def test_each_kind_of_decision_can_be_left_out(table):
    """Without packs arrays stay apart; without widths too, as wide ones do not go together; nothing at all is the version as it was."""
    alone = compiled(Turns(), JointNarrowing(table, WIDTHS))
    assert len(version(alone).image.entries) == 6
    assert version(alone).tuning.predicted_us == pytest.approx(elf_us(KNOWN, [8, 4] * 3, [[100], [80]] * 3)), "wide is best alone"
    wide = compiled(Turns(), JointNarrowing(table, NarrowingKinds(widths=False, folds=False)))
    assert set(columns(wide)) == {8} and len(version(wide).image.entries) == 6
    nothing = version(compiled(Turns(), JointNarrowing(table, NarrowingKinds(False, False, False)))).tuning
    assert nothing.predicted_us == nothing.baseline_us and not nothing.chosen and not nothing.groups


def test_an_array_alone_is_narrowed_where_its_load_counts():
    """Six entries of a slow load, for steps that hardly differ."""
    table = fill(fill(empty(), add(), by_columns(1.0, 300.0)), silu(), by_columns(1.0, 300.0))
    assert columns(compiled(Turns(), JointNarrowing(table, WIDTHS))) == [1] * 6


@pytest.mark.parametrize(("noise", "taken"), [(0.0, 1), (0.9, 1), (1.1, 8), (None, 8)])
def test_a_setting_is_faster_beyond_two_standard_errors(noise, taken):
    """2 us faster on one column, whose load is the same."""
    costs = {8: step(8.0, 50.0), 1: step(6.0, 50.0, noise_us=noise)}
    table = fill(fill(empty(), add(), lambda op: costs.get(op.num_aie_columns)), silu(), by_columns(4.0, 80.0))
    assert columns(compiled(Turns(), JointNarrowing(table, WIDTHS)))[0] == taken
    assert columns(compiled(Turns(), JointNarrowing(table, WIDTHS, confidence=0.5)))[0] == (taken if noise is None else 1)


@pytest.mark.parametrize(("change", "taken"), [({}, 1), ({"accurate": False}, 8), ({"exact": False}, 1)])
def test_a_setting_that_is_not_accurate_is_none(change, taken):
    """One within the gates is taken, and the report says that it is not exact."""
    costs = {8: step(8.0, 50.0), 1: step(6.0, 50.0, **change)}
    table = fill(fill(empty(), add(), lambda op: costs.get(op.num_aie_columns)), silu(), by_columns(4.0, 80.0))
    tuned = compiled(Turns(), JointNarrowing(table, WIDTHS))
    assert columns(tuned)[0] == taken
    inexact = version(tuned).tuning.inexact
    assert inexact == (("ElementwiseAdd(size=2048)",) if "exact" in change else ())
    assert ("(within its gates, not exact)" in version(tuned).tuning.report()) == bool(inexact)


def test_operating_points_count_instead_of_the_call():
    """One column is faster at the call's own numbers and slower over its points."""
    points = {8: {"n=1": Point(1, 5.0, True, True, 50, 0.0)}, 1: {"n=1": Point(1, 9.0, True, True, 50, 0.0)}}
    costs = {8: step(8.0, 50.0, points=points[8]), 1: step(6.0, 50.0, points=points[1]), 2: step(1.0, 1.0)}
    table = fill(fill(empty(), add(), lambda op: costs.get(op.num_aie_columns)), silu(), by_columns(4.0, 80.0))
    tuned = compiled(Turns(), JointNarrowing(table, WIDTHS))
    assert columns(tuned)[0] == 8, "the one without points was not measured where the default was"
    assert version(tuned).tuning.baseline_us == pytest.approx(elf_us(KNOWN, [5, 4] * 3, [[50], [80]] * 3))


def test_a_tunable_that_a_call_gives_is_held(table):
    class Given(iron.Graph):
        def body(self, x, y):
            return SiLU(ElementwiseAdd(x, y, **HELD, num_aie_columns=8), **HELD)

    table = fill(empty(), ElementwiseAdd(size=SIZE, **HELD), by_columns(8.0, 900.0))
    fill(table, silu(), by_columns(4.0, 900.0))
    assert columns(compiled(Given(), JointNarrowing(table, WIDTHS))) == [8, 1]


def test_a_table_that_says_its_settings_is_asked_for_those_alone(table, monkeypatch):
    """The same decision as by trying all; a setting that is no more what it was is left out."""
    told = CostTable("npu2", steps=dict(table.steps), calibrations=table.calibrations)
    for op in (add(), silu()):
        for columns in (4, 2, 1):
            key = cost_key(op.with_tunables(num_aie_columns=columns), "npu2")
            told.steps[key] = attrs.evolve(told.steps[key], setting_of=cost_key(op, "npu2"), tunables={"num_aie_columns": columns})
    assert columns_of(JointNarrowing(told)) == columns_of(JointNarrowing(table)) == [4, 8] * 3
    tried = []
    monkeypatch.setattr("iron_tuner.designs.itertools.product", lambda *axes: tried.append(axes) or [])
    assert columns_of(JointNarrowing(told)) == [4, 8] * 3 and not any(tried)
    for key, cost in told.steps.items():
        if cost.tunables:
            told.steps[key] = attrs.evolve(cost, tunables={"num_columns": 4})
    assert columns_of(JointNarrowing(told)) == [8, 8] * 3


def test_designs_of_one_array_stay_on_one(table):
    """Two sizes of an operator are one array before and after: they take the setting that is best for both."""

    class Sizes(iron.Graph):
        def body(self, x, y):
            return SiLU(x, **HELD), SiLU(y, **HELD)

    times = {4096: {8: 9.0, 4: 1.0, 2: 9.0, 1: 9.0}, 2048: {8: 9.0, 4: 9.5, 2: 9.5, 1: 8.0}}

    def cost(op):
        return step(times[op.size][op.num_aie_columns], 50.0)

    both = fill(fill(empty(), silu(2048), cost), silu(4096), cost)
    tuned = Sizes().compile(backend="sim", dev="npu2", x=(2048,), y=(4096,), coresident=JointNarrowing(both, WIDTHS))
    assert columns(tuned) == [4, 4]
    assert len(version(tuned).image.entries) == 1
    assert version(tuned).tuning.predicted_us == pytest.approx(elf_us(KNOWN, [9.5, 1.0], [[50]]))


def test_a_pack_that_was_measured_counts_as_it_was():
    """Its entry and its steps there, whatever its members' loads are."""
    narrow = [op.with_tunables(num_aie_columns=2) for op in (add(), silu())]
    table = of_turns()
    table.add_pack(*pack((narrow[0], 9.0), (narrow[1], 5.0), entry=40.0))
    tuned = compiled(Turns(), JointNarrowing(table, PACKS))
    assert columns(tuned) == [2, 2] * 3
    assert version(tuned).tuning.predicted_us == pytest.approx(DISPATCH + 3 * (9 + 5) + 40 + RESET)
    dear = of_turns()
    dear.add_pack(*pack((narrow[0], 90.0), (narrow[1], 50.0), entry=40.0))
    assert columns(compiled(Turns(), JointNarrowing(dear, PACKS))) == [4, 8] * 3


def test_a_chain_sets_each_array_by_itself():
    """Steps and switches, each to what it loads; nothing shares a configuration."""
    table = fill(fill(empty("separate"), add(), by_columns(1.0, 300.0, base=0.0)), silu(), by_columns(40.0, 80.0, base=0.0))
    tuned = compiled(Turns(), JointNarrowing(table), boundaries=iron.each_step)
    found = version(tuned).tuning
    assert columns(tuned) == [1, 8] * 3 and not found.groups and found.configures == 6
    assert found.predicted_us == pytest.approx(chain_us(Constants(DISPATCH), [2.5, 40.0] * 3, [294.75, 80.0] * 3))
    contexts = version(compiled(Turns(), JointNarrowing(table), image=iron.CONTEXTS)).tuning
    assert contexts.configures == 0 and not contexts.chosen, "each array has a context of its own, and is loaded in no call"


# -- what is not in the table ---------------------------------------------------------------------------------


def test_a_design_that_is_not_in_the_table_stays_as_it_is(table, untuned):
    """Alone, and out of the model; the others are decided."""
    only = fill(empty(), add(), by_columns(1.0, 300.0))
    tuned = compiled(Turns(), JointNarrowing(only))
    found = version(tuned).tuning
    assert columns(tuned) == [1, 8] * 3 and not found.groups
    assert found.unmeasured == (("SiLU(size=2048)", "it is not in the cost table"),)
    assert "not in the model: SiLU(size=2048): it is not in the cost table" in found.report()
    assert np.asarray(tuned(*drawn())).tobytes() == np.asarray(untuned(*drawn())).tobytes()


def test_a_design_that_has_changed_since_follows_its_profile_and_is_said(table):
    """The table has what it was: entries of the same operator that are no design here any more."""
    profile = iron.Profile()
    profile.add(SiLU, size=SIZE, tile_size=256, num_channels=1, num_aie_columns=4)

    class Changed(iron.Graph):
        def body(self, x, y):
            return SiLU(ElementwiseAdd(x, y, **HELD), num_channels=1)

    old = fill(fill(empty(), add(), by_columns(8.0, 100.0)), SiLU(size=SIZE, tile_size=128, num_channels=1), by_columns(4.0, 80.0))
    with profile:
        tuned = compiled(Changed(), JointNarrowing(old))
    assert columns(tuned)[1] == 4, "as the profile has it"
    assert version(tuned).tuning.unmeasured == (("SiLU(size=2048)", "it is not in the cost table"),)
    assert "changed since: 1 design of SiLU is not in the table, which has 4 entries of SiLU" in version(tuned).tuning.report()
    assert "changed since" in tuned.explain()
    assert "changed since" not in version(compiled(Turns(), JointNarrowing(table))).tuning.report()


def test_what_was_left_out_of_a_file_is_said(table):
    """With a file's names as a terminal may show them."""
    table.dropped = ("SiLU_1\x1b[2J: t_step_us: nan is no time; it is to be measured again.",)
    said = version(compiled(Turns(), JointNarrowing(table))).tuning.report()
    assert "left out of the cost table: SiLU_1\\x1b[2J: t_step_us: nan is no time" in said


def test_a_design_whose_load_is_not_known_stays_as_it_is():
    bare = empty()
    for op in (add(), silu()):
        bare.add_step(cost_key(op, "npu2"), attrs.evolve(step(1.0, 1.0), beside="", pair_us=None))
    found = version(compiled(Turns(), JointNarrowing(bare))).tuning
    assert [what for what, _ in found.unmeasured] == ["ElementwiseAdd(size=2048)", "SiLU(size=2048)"]
    assert all("was not measured" in why for _, why in found.unmeasured)


# -- what is refused ------------------------------------------------------------------------------------------


def test_tables_of_another_device_or_packaging_are_refused(table):
    with pytest.raises(CostError, match="cost table is of device npu2, and Turns is compiled for npu1; measure one there"):
        compiled(Turns(), JointNarrowing(table), dev="npu1")
    with pytest.raises(CostError, match="cost table is of packaging fused, and Turns is compiled for separate"):
        compiled(Turns(), JointNarrowing(table), boundaries=iron.each_step)


def test_a_table_without_calibrations_is_refused():
    with pytest.raises(CostError, match="has no calibration; measure three designs, each with each"):
        compiled(Turns(), JointNarrowing(CostTable("npu2")))


def test_it_is_loaded_from_a_file(table, tmp_path):
    """As a command line's `--cost-table` does."""
    table.save(tmp_path / "costs_npu2.json")
    loaded = JointNarrowing.load(tmp_path / "costs_npu2.json")
    assert loaded == JointNarrowing(table)
    assert version(compiled(Turns(), loaded)).tuning.groups


def test_a_decision_is_applied_as_often_as_one_likes(table):
    """Nothing of the trace is changed in place."""
    tuning = version(compiled(Turns(), JointNarrowing(table))).tuning
    before = [step.op for step in tuning.asked.traced.steps]
    first, second = tuning.apply(), tuning.apply()
    assert [step.op for step in tuning.asked.traced.steps] == before and all(op.num_aie_columns is None for op in before)
    assert [repr(step.op) for step in first.traced.steps] == [repr(step.op) for step in second.traced.steps]
    assert first.packs == second.packs
