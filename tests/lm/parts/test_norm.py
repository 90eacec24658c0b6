"""`Norm` alone: the root mean square over a row, with and without weight."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iron_core.errors import ParamError
from iron_lm.parts.norm import Norm, NormConfig
from iron_lm.run import Run
from iron_lm.testing import check_part


@settings(max_examples=12)
@given(
    config=st.builds(NormConfig, st.integers(1, 70), st.sampled_from((1e-6, 1e-5, 0.1)), st.booleans()),
    rows=st.integers(1, 9),
    scale=st.sampled_from((1e-3, 1.0, 100.0)),
    seed=st.integers(0, 99),
)
def test_it_is_its_twin(config: NormConfig, rows: int, scale: float, seed: int, backend: str, run: Run) -> None:
    """Rows of any size, weight or none, in a chunk and one by one."""
    x = scale * np.random.default_rng(seed).standard_normal((rows, config.size)).astype(np.float32)
    report = check_part(Norm(config), run, x, rows // 2, seed=seed, backend=backend)
    assert report.passed, report.lines()


def test_a_row_has_mean_square_one(run: Run) -> None:
    """By hand: [3, 4] has the mean square 12.5."""
    got = Norm(NormConfig(2, 1e-12, weight=False)).twin({}, np.array([[3, 4]], np.float32))
    np.testing.assert_allclose(got, [[3 / 12.5**0.5, 4 / 12.5**0.5]], rtol=1e-6)


def test_without_a_weight_it_needs_none() -> None:
    assert Norm(NormConfig(8, weight=False)).tensors() == {} and Norm(NormConfig(8)).tensors() == {"weight": (8,)}


@pytest.mark.parametrize(("given", "says"), [(dict(size=0), "size=0; legal: a whole"), (dict(size=4, epsilon=0.0), "epsilon=0.0")])
def test_a_config_that_cannot_be_is_refused(given: dict[str, float], says: str) -> None:
    """By field and value."""
    with pytest.raises(ParamError, match=says):
        NormConfig(**given)  # type: ignore[arg-type]
