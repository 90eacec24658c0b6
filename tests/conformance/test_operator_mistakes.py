"""The suite that operators inherit tells a mistake from what is right, by the test that is about it."""

from __future__ import annotations

import pytest

from tests.conformance.mistakes import failures

RUNS = {"a_backend_keeps_the_contract", "an_input_may_be_cut_to_its_bound", "a_graph_computes_the_same"}
GATE = {"its_tile_references_composed_are_within_its_gate"}
COMPILED = {"an_inline_kernel_equals_its_tile_reference"}

#: By mistake (`wrong_operators.py`): the test that is about it, and others that see it too.
SEEN = {
    "Overwrites": ("the_reference_leaves_its_inputs_as_they_were", set()),
    "Random": ("the_reference_is_a_function", RUNS | GATE | {"the_reference_widens_before_it_computes"}),
    "Counts": ("the_reference_is_a_function", RUNS | GATE | {"the_reference_widens_before_it_computes"}),
    "Short": ("the_reference_gives_every_output", RUNS | GATE),
    "Infinite": ("the_reference_is_finite", {"a_backend_keeps_the_contract", "a_wrong_answer_is_out_of_its_tolerance"} | GATE),
    "Narrow": ("the_reference_widens_before_it_computes", set()),
    "Tolerant": ("a_wrong_answer_is_out_of_its_tolerance", set()),
    "Unbounded": ("its_tolerance_is_one", {"a_wrong_answer_is_out_of_its_tolerance"}),
    "Small": ("its_magnitude_is_no_smaller_than_its_answer", set()),
    "Silent": ("it_is_documented", set()),
    "Untested": ("it_has_cases", {"every_extent_is_bounded_in_a_case", "some_case_has_an_array"}),
    "Twice": ("it_has_cases", set()),
    "Whole": ("every_extent_is_bounded_in_a_case", set()),
    "Zeros": ("a_wrong_answer_is_out_of_its_tolerance", {"no_number_is_no_answer"}),
    "Drifting": ("inputs_are_drawn_as_they_are_declared", set()),
    "Renamed": ("it_is_found_by_its_name", set()),
    "Serial": ("shapes_and_dtypes_say_what_the_operands_can", set()),
    "Debt": ("its_operations_are_counted", set()),
    "Garbage": (*COMPILED, set()),
    "Other": (*COMPILED, set()),
    "Mangled": (*COMPILED, set()),
    "Behind": (*COMPILED, set()),
    "Unequal": (*COMPILED, set()),
    "Deviates": (*GATE, {"a_backend_keeps_the_contract"} | COMPILED),
    "Neighbours": ("an_elementwise_kernel_is_one", RUNS | GATE | COMPILED),
    "Careless": ("a_tile_reference_leaves_its_tiles_as_they_were", set()),
    "Loose": ("a_wrong_tile_is_out_of_a_kernels_tolerance", set()),
    "Roomless": ("a_case_has_an_array_or_is_refused_in_words", {"a_backend_keeps_the_contract"}),
}


@pytest.fixture(scope="module")
def failed():
    """All of them in one process."""
    return failures("wrong_operators")


@pytest.mark.parametrize("mistake", SEEN)
def test_a_mistake_is_seen_by_the_test_that_is_about_it(failed, mistake):
    """And by no test that is about something else."""
    about, beside = SEEN[mistake]
    found = {name.removeprefix("test_") for name in failed.get(mistake, ())}
    assert about in found and found <= {about, *beside}


def test_what_is_right_passes(failed):
    """Every class of the file but one has a mistake."""
    assert failed.keys() == SEEN.keys()
