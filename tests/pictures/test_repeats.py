"""Layers that repeat are found in a run list, wherever they begin."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from iron_core.visualize.repeats import LEAST, Stretch, repeats


def test_a_repetition_with_what_is_around_it():
    """What comes before and behind is a stretch of its own."""
    assert repeats("ab" + "xyz" * 5 + "cd") == (Stretch(0, 2, 1), Stretch(2, 3, 5), Stretch(17, 2, 1))


def test_of_two_ways_the_shorter_round():
    """Ten rounds of two are not five of four."""
    assert repeats("xy" * 10) == (Stretch(0, 2, 10),)


def test_rounds_begin_where_layers_do():
    """A row to spare at either end is left where fewest rounds mix two layers."""
    kinds = "ab" * 6 + "a"
    assert repeats(kinds)[0] == Stretch(0, 2, 6)
    layers = [None, *(i // 2 for i in range(12))]
    assert repeats(kinds, layers)[1] == Stretch(1, 2, 6)


def test_two_repetitions():
    """Each is found, the longer first."""
    assert [one for one in repeats("ab" * 8 + "xyz" * 9) if one.count > 1] == [Stretch(0, 2, 8), Stretch(16, 3, 9)]


def test_little_is_left_as_it_is():
    """Fewer rows than are worth opening."""
    assert repeats("ab" * (LEAST // 2 - 1)) == (Stretch(0, LEAST - 2, 1),)


@given(st.lists(st.integers(0, 2), max_size=60))
def test_every_row_is_in_one_stretch_and_rounds_are_alike(kinds):
    """Whatever the rows."""
    found = repeats(kinds)
    assert [i for one in found for i in range(one.start, one.stop)] == list(range(len(kinds)))
    for one in found:
        rounds = {tuple(kinds[i : i + one.length]) for i in range(one.start, one.stop, one.length)}
        assert len(rounds) == 1
