"""The suite that formats inherit tells a mistake from what is right, by the test that is about it."""

from __future__ import annotations

import pytest

from tests.conformance.mistakes import failures

ALONE = {"a_reshape_keeps_the_numbers", "matrices_are_numbers_by_themselves"}

#: By mistake (`wrong_formats.py`): the test that is about it, and others that see it too.
SEEN = {
    "Disagrees": ("rounded_numbers_are_near", {"a_drawn_tensor_is_of_the_size_asked_for", "numbers_of_the_format_stay_nearer"}),
    "Short": (
        "a_tensor_is_as_many_bytes_as_it_says",
        {
            *("any_bytes_are_numbers", "bytes_are_seen_not_copied", "matrices_are_stored_one_behind_another"),
            *("rounding_gives_a_tensor_of_the_shape", "rows_are_stored_one_behind_another"),
        },
    ),
    "Crowded": ("matrices_are_stored_one_behind_another", ALONE),
    "Wide": ("its_numbers_are_float32", set()),
    "Overwrites": ("its_numbers_are_float32", {"units_are_numbers_by_themselves"} | ALONE),
    "Global": ("units_are_rounded_by_themselves", set()),
    "Biased": ("zeros_are_rounded_to_zeros", {"a_drawn_tensor_is_of_the_size_asked_for"}),
    "Dithered": ("rounding_is_a_function", {"a_drawn_tensor_is_of_the_format", "units_are_rounded_by_themselves"}),
    "Scales": ("rounding_gives_a_tensor_of_the_shape", {"units_are_rounded_by_themselves"}),
    "Large": ("a_drawn_tensor_is_of_the_size_asked_for", set()),
    "Identity": ("it_is_a_value", {"a_tensor_pickles"}),
    "Unnamed": ("it_is_a_packed_format", set()),
    "Elsewhere": ("it_is_found_by_its_name", set()),
    "Outside": ("its_floats_lie_inside_a_block", set()),
    "Trusting": ("what_is_no_numbers_is_not_rounded", {"units_are_rounded_by_themselves"}),
}


@pytest.fixture(scope="module")
def failed():
    """All of them in one process."""
    return failures("wrong_formats")


@pytest.mark.parametrize("mistake", SEEN)
def test_a_mistake_is_seen_by_the_test_that_is_about_it(failed, mistake):
    """And by no test that is about something else."""
    about, beside = SEEN[mistake]
    found = {name.removeprefix("test_") for name in failed.get(mistake, ())}
    assert about in found and found <= {about, *beside}


def test_what_is_right_passes(failed):
    """A format that rounds, and one that is only read."""
    assert failed.keys() == SEEN.keys()
