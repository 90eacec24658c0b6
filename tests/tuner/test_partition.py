"""The search for packs: equal to enumeration where it ends, and never further off than it says where it is cut short."""

from __future__ import annotations

import itertools

import pytest

from iron_tuner.candidates import cheapest, packs
from iron_tuner.partition import covered, partition
from iron_tuner.problem import Problem, Setting, Unit
from tests.tuner.problems import blocks, drawn, optimum


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_it_equals_enumeration_on_random_graphs(first):
    """300 of them: the same optimum, and it says that it is one."""
    for seed in range(first, first + 50):
        problem = drawn(seed, 1 + seed % 6, 8)
        found = partition(problem)
        assert found.exact and found.gap == 0.0
        assert found.us == pytest.approx(problem.total_us(found.blocks)) == pytest.approx(optimum(problem), abs=1e-6), seed
        assert sorted(unit for block in found.blocks for unit, _ in block) == list(range(len(problem.units)))
        assert all(map(problem.legal, found.blocks))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_cut_short_it_is_no_further_off_than_it_says(seed):
    """30 larger ones, of which it looks at a few sets and states only: no partition is cheaper than the bound."""
    problem = drawn(1000 + seed, 9 + seed % 3, 16)
    found = partition(problem, states=1 + 10 * (seed % 4), width=(2, 10, 10_000)[seed % 3])
    best = optimum(problem)
    assert found.bound_us - 1e-6 <= best <= found.us + 1e-6
    assert found.gap == pytest.approx(max(0.0, 1 - found.bound_us / found.us))
    assert not found.exact or found.us == pytest.approx(best)


@pytest.mark.parametrize("width", [3, 10_000])
def test_its_prices_prove_the_bound(width):
    """Whoever adds them up and looks at every block sees that no partition is cheaper: also blocks that were no candidates."""
    for seed in range(4, 10):
        problem = drawn(2000 + seed, 8, 14)
        found = partition(problem, states=1, width=width)
        assert sum(found.prices) <= optimum(problem) + 1e-6
        for size in range(1, problem.members + 1):
            for members in itertools.combinations(range(8), size):
                if size == 1 or problem.may_share(members):
                    for block in blocks(problem, members):
                        assert covered(found.prices, problem.block_us(block), members), (seed, block)


def test_some_searches_are_cut_and_some_sets_passed_over():
    """The two tests above would show nothing otherwise."""
    problems = [drawn(2000 + seed, 8, 14) for seed in range(4, 10)]
    assert any(not partition(problem, states=1, width=3).complete for problem in problems)
    assert any(not partition(problem, states=1).exact for problem in problems)


def test_the_cheapest_blocks_come_in_order():
    """By branch and bound, as enumeration has them."""
    for seed in range(40):
        problem = drawn(seed, 5, 10)
        for members in itertools.chain(*(itertools.combinations(range(5), size) for size in (1, 2, 3))):
            if len(members) > 1 and not problem.may_share(members):
                continue
            want = sorted(map(problem.block_us, blocks(problem, members)))
            got = cheapest(problem, members, 3)
            assert [problem.block_us(block) for block in got] == pytest.approx(want[:3])


def two(runs: int = 4, reset: float = 0.0, **unit: float) -> Problem:
    """Two arrays in turn, each with a wide setting and a narrow one."""
    wide, narrow = Setting(10.0, 50.0, (16, 8)), Setting(12.0, 40.0, (8, 4))
    return Problem((Unit("a", (wide, narrow)), Unit("b", (wide, narrow))), (0, 1) * runs, 30.0, reset, (16, 16))


def test_two_arrays_in_turn_share_a_configuration_where_they_are_narrow():
    """One entry instead of eight pays for slower steps; wide, they would not go together."""
    problem = two()
    (block,) = partition(problem).blocks
    assert block == ((0, 1), (1, 1))
    assert problem.entries((0, 1)) == 1
    assert problem.total_us([block]) == 2 * 12 + 1 * (30 + 2 * 40)
    assert problem.total_us(problem.defaults) == 2 * 10 + 8 * (30 + 50)
    assert not problem.legal(((0, 0), (1, 0)))


def test_a_pack_that_does_not_fit_is_tried_at_its_next_settings_then_given_up():
    """The placer is asked of every pack that is chosen, and of no other."""
    asked = []

    def fits(block):
        asked.append(block)
        return False

    found = partition(two(), fits)
    assert all(len(block) == 1 for block in found.blocks)
    assert asked == cheapest(two(), (0, 1), 3)
    assert len(asked) == len(set(asked)) == 1, "one combination alone is within the shims' channels"
    second = Problem(two().units, two().arrivals, 30.0, 0.0, (40, 40))
    refused = cheapest(second, (0, 1), 1)
    (block,) = partition(second, lambda block: block not in refused).blocks
    assert block == cheapest(second, (0, 1), 3)[1]


def test_where_nothing_seems_to_fit_it_stops_asking():
    """After so many searches with the packs that are known to fit; what others might have saved is in the bound."""
    problem, asked = drawn(3, 6, 8), []
    found = partition(problem, lambda block: asked.append(block), rounds=1)
    assert all(len(block) == 1 for block in found.blocks) and not found.exact
    assert found.us == pytest.approx(problem.total_us(cheapest(problem, (unit,), 1)[0] for unit in range(6)))
    assert found.bound_us < found.us and optimum(problem) <= found.us
    assert len(asked) < len(packs(problem, [0.0] * 6)[0])


def test_an_odd_number_of_entries_costs_a_reset():
    """So a pack that saves less than it costs by itself is taken where it makes them even, and left where it makes them odd."""
    flat = Setting(5.0, 0.0, (1, 1))
    dearer = Setting(6.0, 0.0, (1, 1))
    alone = Unit("c", (flat,), packable=False)
    units = (Unit("a", (Setting(5.0, 0.0, (16, 16)), dearer)), Unit("b", (Setting(5.0, 0.0, (16, 16)), dearer)), alone)
    odd = Problem(units, (0, 1, 2), 1.0, 30.0, (16, 16))
    assert len(partition(odd).blocks) == 2, "3 entries and a reset, or 2"
    even = Problem(units, (0, 1, 2, 0), 1.0, 30.0, (16, 16))
    assert len(partition(even).blocks) == 3
    assert packs(even, [0.0] * 3)[1]


def test_an_array_alone_is_narrowed_where_entering_it_costs_more_than_its_steps():
    """Its load counts at every entry."""
    unit = Unit("a", (Setting(10.0, 50.0, (16, 16)), Setting(14.0, 47.0, (4, 4))))
    other = Unit("b", (Setting(1.0, 1.0, (16, 16)),), packable=False)
    assert ((0, 1),) in partition(Problem((unit, other), (0, 1) * 3, 30.0, 0.0, (16, 16))).blocks
    assert ((0, 0),) in partition(Problem((unit, other), (0, 1), 30.0, 0.0, (16, 16))).blocks
