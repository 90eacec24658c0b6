"""The cost model: pure functions of measured costs."""

from __future__ import annotations

import attrs
import pytest

from iron_tuner.cost_table import Calibration, CostTable, Point, StepCost
from iron_tuner.errors import CostError
from iron_tuner.model import (
    Constants,
    Loads,
    constants,
    entered_us,
    expected_us,
    is_candidate,
    is_exact,
    noise_us,
    price_us,
)

STEP = StepCost(10.0, 30.0, True, True, "turbo", 8, 50, "2026-12-01", noise_us=0.1)


def calibration(switch: float, **other: float) -> Calibration:
    known = {"dispatch_us": 45.0, "base_us": 32.0, "reset_us": 35.0, **other}
    return Calibration(switch, **known, pmode="turbo", rounds=8, calls=50, measured="2026-12-01")


def triangle(**entered: float) -> CostTable:
    """Three designs, each with each, whose entries take this."""
    table = CostTable("npu2")
    names = list(entered)
    for i, a in enumerate(names):
        for b in names[:i]:
            table.add_calibration(b, a, calibration((entered[a] + entered[b]) / 2))
    return table


def test_constants_are_medians_of_the_calibrations():
    table = CostTable("npu2")
    for i, us in enumerate((40.0, 50.0, 90.0)):
        table.add_calibration("a", f"b{i}", calibration(40.0, dispatch_us=us, base_us=us - 10, reset_us=us / 2))
    assert constants(table) == Constants(50.0, 40.0, 25.0)


def test_a_table_without_constants_is_refused():
    with pytest.raises(CostError, match=r"npu2 has no calibration; measure three designs, each with each"):
        constants(CostTable("npu2"))
    table = CostTable("npu2")
    table.add_calibration("a", "b", attrs.evolve(calibration(40.0), base_us=None))
    with pytest.raises(CostError, match="has base_us, a part of a full ELF's time"):
        constants(table)
    assert constants(attrs.evolve(table, dispatch="separate")) == Constants(45.0), "a chain has no entries"


def test_operating_points_count_by_their_weights():
    """The step's own time is not among them; their errors add up as those of a mean do."""
    cost = attrs.evolve(STEP, points={"n=1": Point(1, 4.0, True, True, 50, 0.3), "n=9": Point(3, 8.0, False, True, 50, 0.2)})
    assert expected_us(cost) == 7.0 and expected_us(STEP) == 10.0
    assert noise_us(cost) == pytest.approx((0.3**2 + (3 * 0.2) ** 2) ** 0.5 / 4)
    assert noise_us(attrs.evolve(cost, points={**cost.points, "n=5": Point(1, 5.0, True, True, 50)})) is None
    assert is_exact(STEP) and not is_exact(cost)


def test_a_candidate_is_accurate_at_every_point_that_the_default_has():
    points = {"n=1": Point(1, 4.0, True, True, 50), "n=9": Point(3, 8.0, False, True, 50)}
    default = attrs.evolve(STEP, points=points)
    assert is_candidate(default, default) and is_candidate(attrs.evolve(default, exact=False), default)
    for wrong in (
        STEP,
        attrs.evolve(default, accurate=False),
        attrs.evolve(default, points={**points, "n=9": attrs.evolve(points["n=9"], accurate=False)}),
        attrs.evolve(default, points={**points, "n=9": attrs.evolve(points["n=9"], weight=2)}),
        attrs.evolve(default, points={"n=1": points["n=1"]}),
    ):
        assert not is_candidate(wrong, default)


@pytest.mark.parametrize(
    ("own", "noise", "price"),
    [(9.0, 0.4, 9.0), (9.0, 0.6, 10.0), (9.0, None, 10.0), (10.5, 0.1, 10.5), (9.9, 0.0, 9.9), (10.0, 0.0, 10.0)],
)
def test_a_setting_counts_as_faster_beyond_two_standard_errors(own, noise, price):
    """Else it costs what the default does, or what it does, whichever is more."""
    assert price_us(attrs.evolve(STEP, t_step_us=own, noise_us=noise), STEP) == price


def test_loads_follow_from_a_triangle():
    """Each pair tells the mean of two entries; three pairs tell the three."""
    loads = Loads(triangle(a=100.0, b=140.0, c=250.0))
    assert [loads[key] for key in "abc"] == pytest.approx([68.0, 108.0, 218.0])


def test_more_pairs_than_needed_are_fitted_by_least_squares():
    pairs = {("a", "b"): 120.0, ("b", "c"): 195.0, ("a", "c"): 175.0, ("c", "a"): 177.0}
    found = entered_us(pairs)
    left = {pair: us - (found[pair[0]] + found[pair[1]]) / 2 for pair, us in pairs.items()}
    assert left[("a", "c")] == pytest.approx(-1.0) and left[("c", "a")] == pytest.approx(1.0)
    assert left[("a", "b")] == pytest.approx(0.0) and left[("b", "c")] == pytest.approx(0.0)


def test_a_load_beside_a_calibrated_design():
    table = triangle(a=100.0, b=140.0, c=250.0)
    table.add_step("d", attrs.evolve(STEP, beside="a", pair_us=68.0 + 17.0 + 2 * 32.0))
    table.add_step("e", attrs.evolve(STEP, beside="d", pair_us=17.0 + 21.0 + 2 * 32.0))
    loads = Loads(table)
    assert loads["d"] == pytest.approx(17.0) and loads["e"] == pytest.approx(21.0)
    table.add_step("f", attrs.evolve(STEP, beside="a", pair_us=100.0))
    assert loads["f"] == 0.0, "what noise makes less than nothing is nothing"


def test_a_chain_has_loads_without_a_base():
    table = attrs.evolve(triangle(a=100.0, b=140.0, c=250.0), dispatch="separate")
    assert Loads(table)["b"] == pytest.approx(140.0)


def test_a_load_that_nothing_determines_is_refused():
    """Two designs, or a square, tell a sum and no part of it; a design that was measured beside none has no load."""
    square = CostTable("npu2")
    for pair in ("ab", "bc", "cd", "da"):
        square.add_calibration(*pair, calibration(100.0))
    loads = Loads(square)
    with pytest.raises(CostError, match=r"load of b is not determined: its calibrations form no odd cycle. Measure a triangle"):
        loads["b"]
    square.add_step("x", STEP)
    square.add_step("y", attrs.evolve(STEP, beside="y", pair_us=1.0))
    for key in "xyz":
        with pytest.raises(CostError, match=f"load of {key} was not measured"):
            loads[key]
        assert key not in loads
    square.add_calibration("a", "c", calibration(100.0))
    assert all(key in Loads(square) for key in "abcd"), "a diagonal makes triangles"
