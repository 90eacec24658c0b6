"""The suite that devices inherit tells a mistake from what is right, by the test that is about it."""

from __future__ import annotations

import pytest

from tests.conformance.mistakes import failures

ARRAY = {
    *("an_array_explains_itself", "an_array_fits_it", "an_array_is_simulated", "an_array_of_more_rows_is_the_same_array"),
    *("its_memories_are_bytes", "its_rates_are_rates", "its_reads_are_within_its_streams", "resolving_keeps_to_its_columns"),
    *("what_has_no_room_is_refused", "its_tiles_move_data", "its_descriptors_have_fields", "a_graph_is_planned_for_it"),
}

#: By mistake (`wrong_devices.py`): the test that is about it, and others that see it too.
SEEN: dict[str, tuple[str, set[str]]] = {
    "Renamed": ("it_is_found_by_its_name", ARRAY),
    "Other": ("it_is_found_by_its_name", set()),
    "Host": ("it_has_an_array", ARRAY),
    "Spaced": ("it_is_a_device", set()),
    "Still": ("its_rates_are_rates", {"its_reads_are_within_its_streams"}),
    "Fast": ("its_reads_are_within_its_streams", set()),
    "Unknown": ("its_products_are_of_dtypes", set()),
    "Twice": ("its_products_are_of_dtypes", set()),
    "Alone": ("its_words_and_contexts_are_counted", set()),
    "Empty": ("its_memories_are_bytes", set()),
    "Odd": ("its_memories_are_bytes", set()),
    "Mute": ("its_tiles_move_data", set()),
    "Narrow": ("its_descriptors_have_fields", set()),
}


@pytest.fixture(scope="module")
def failed():
    """All of them in one process."""
    return failures("wrong_devices")


@pytest.mark.parametrize("mistake", SEEN)
def test_a_mistake_is_seen_by_the_test_that_is_about_it(failed, mistake):
    """And by no test that is about something else."""
    about, beside = SEEN[mistake]
    found = {name.removeprefix("test_") for name in failed.get(mistake, ())}
    assert about in found and found <= {about, *beside}


def test_what_is_right_passes(failed):
    """Every class of the file but one has a mistake."""
    assert failed.keys() == SEEN.keys()
