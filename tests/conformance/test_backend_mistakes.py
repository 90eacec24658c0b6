"""The suite that backends inherit tells a mistake from what is right, by the test that is about it."""

from __future__ import annotations

import pytest

from tests.conformance.mistakes import failures

#: By mistake (`wrong_backends.py`): the test that is about it, and others that see it too.
SEEN: dict[str, tuple[str, set[str]]] = {
    "Raises": ("its_probe_says_whether_it_can_run", set()),
    "Lines": ("its_probe_says_whether_it_can_run", set()),
    "Nowhere": ("its_devices_are_known", set()),
    "Shrugs": ("it_answers_for_every_operator", set()),
    "Chokes": ("it_answers_for_every_operator", set()),
    "Anything": ("an_option_that_is_none_is_refused", set()),
    "Identity": ("it_is_a_value", set()),
    "Numbered": ("compiling_again_gives_an_equal_image", set()),
    "OffByOne": (
        "it_computes_what_the_reference_does",
        {
            *("a_loop_carries", "bounds_follow_each_call", "calls_of_several_threads_take_turns", "versions_share_weights"),
            "what_is_wrong_is_refused_and_leaves_it_as_it_was",
        },
    ),
    "Greedy": ("it_refuses_what_it_does_not_take", set()),
}


@pytest.fixture(scope="module")
def failed():
    """All of them in one process."""
    return failures("wrong_backends")


@pytest.mark.parametrize("mistake", SEEN)
def test_a_mistake_is_seen_by_the_test_that_is_about_it(failed, mistake):
    """And by no test that is about something else."""
    about, beside = SEEN[mistake]
    found = {name.removeprefix("test_") for name in failed.get(mistake, ())}
    assert about in found and found <= {about, *beside}


def test_what_is_right_passes(failed):
    """Every class of the file but one has a mistake."""
    assert failed.keys() == SEEN.keys()
