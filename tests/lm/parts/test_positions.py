"""`Positions` alone: the rows of the places that a call's own stand at."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iron_core.errors import BoundsError
from iron_lm.parts.positions import Positions
from iron_lm.run import Run
from iron_lm.testing import alone, check_part, drawn


@settings(max_examples=12)
@given(
    places=st.integers(24, 40),
    width=st.integers(1, 20),
    rows=st.integers(1, 20),
    decoded=st.integers(0, 4),
    seed=st.integers(0, 99),
)
def test_it_is_its_twin(places: int, width: int, rows: int, decoded: int, seed: int, backend: str, run: Run) -> None:
    """As many places as the caches hold or more; a prompt's rows in chunks, then a row a call."""
    x = np.random.default_rng(seed).standard_normal((rows + decoded, width)).astype(np.float32)
    report = check_part(Positions(places, width, run), run, x, rows, seed=seed, backend=backend)
    assert report.passed, report.lines()


def test_no_two_places_are_alike(backend: str, run: Run) -> None:
    """Of zeros it makes the table itself, in order, whether rows come in chunks or one by one."""
    part = Positions(24, 5, run)
    weights = drawn(part)
    part.fill(weights)
    for prompt in (0, 11, 24):
        got = alone(part, run, np.zeros((24, 5), np.float32), prompt, backend=backend)
        np.testing.assert_array_equal(got, weights["embedding.table"])


@pytest.mark.parametrize("prompt", [16, 17])
def test_there_is_none_after_the_last(prompt: int, backend: str, run: Run) -> None:
    """A step or a chunk that ends beyond the table is refused before it runs, though the caches have room."""
    part = Positions(16, 5, run)
    part.fill(drawn(part))
    with pytest.raises(BoundsError, match=r"\[16, 5\]"):
        alone(part, run, np.zeros((17, 5), np.float32), prompt, backend=backend)
