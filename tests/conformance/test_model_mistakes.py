"""The suite that models inherit tells a mistake from what is right, by the test that is about it."""

from __future__ import annotations

import pytest

from tests.conformance.mistakes import failures

HELP = ("help_comes_before_everything", "it_has_a_page_of_help")

#: By mistake (`wrong_models.py`): the test that is about it, and others that see it too.
SEEN: dict[str, tuple[str, set[str]]] = {
    "Wordy": ("its_summary_is_one_line", set()),
    "Mute": ("it_has_a_page_of_help", {"its_help_fits_a_terminal", "its_help_says_what_it_is_called"}),
    "Crashes": ("a_mistake_is_one_line_and_status_two", set()),
    "Tolerant": ("a_mistake_is_one_line_and_status_two", {"a_mistake_says_what_was_wrong"}),
    "Writes": ("a_run_leaves_nothing_in_the_folder", set()),
    "Exports": ("a_run_leaves_the_environment", set()),
    "Eats": ("the_line_is_not_changed", set()),
    "Fails": ("a_line_runs", {"the_same_line_gives_the_same_status", "the_line_is_not_changed", *HELP}),
    "Elsewhere": ("it_compiles_for_the_backend_that_is_named", set()),
    "Plain": ("what_it_compiles_is_a_graph", {"it_compiles_for_the_backend_that_is_named"}),
    "Renamed": ("it_is_found_by_its_name", set()),
}


@pytest.fixture(scope="module")
def failed():
    """All of them in one process."""
    return failures("wrong_models")


@pytest.mark.parametrize("mistake", SEEN)
def test_a_mistake_is_seen_by_the_test_that_is_about_it(failed, mistake):
    """And by no test that is about something else."""
    about, beside = SEEN[mistake]
    found = {name.removeprefix("test_") for name in failed.get(mistake, ())}
    assert about in found and found <= {about, *beside}


def test_what_is_right_passes(failed):
    """Every class of the file but one has a mistake."""
    assert failed.keys() == SEEN.keys()
