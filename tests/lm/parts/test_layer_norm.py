"""`LayerNorm` alone: the mean and the spread of a row, the weight and the bias."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iron_core.errors import ParamError
from iron_lm.parts.layer_norm import LayerNorm, LayerNormConfig
from iron_lm.run import Run
from iron_lm.testing import check_part


@settings(max_examples=12)
@given(
    config=st.builds(LayerNormConfig, st.integers(1, 70), st.sampled_from((1e-6, 1e-5, 0.1))),
    rows=st.integers(1, 9),
    scale=st.sampled_from((1e-3, 1.0, 100.0)),
    shift=st.sampled_from((0.0, -8.0)),
    seed=st.integers(0, 99),
)
def test_it_is_its_twin(
    config: LayerNormConfig, rows: int, scale: float, shift: float, seed: int, backend: str, run: Run
) -> None:
    """Rows of any size, around zero or far from it, in a chunk and one by one."""
    x = (shift + scale * np.random.default_rng(seed).standard_normal((rows, config.size))).astype(np.float32)
    report = check_part(LayerNorm(config), run, x, rows // 2, seed=seed, backend=backend)
    assert report.passed, report.lines()


def test_a_row_has_mean_zero_and_mean_square_one() -> None:
    """By hand: [3, 5] is 4 and 1 to either side; then the weight, then the bias."""
    weights = {"weight": np.array([10, 100], np.float32), "bias": np.array([1, 2], np.float32)}
    got = LayerNorm(LayerNormConfig(2, 1e-12)).twin(weights, np.array([[3, 5]], np.float32))
    np.testing.assert_allclose(got, [[-9, 102]], rtol=1e-6)


@pytest.mark.parametrize(("given", "says"), [(dict(size=0), "size=0; legal: a whole"), (dict(size=4, epsilon=0.0), "epsilon=0.0")])
def test_a_config_that_cannot_be_is_refused(given: dict[str, float], says: str) -> None:
    """By field and value."""
    with pytest.raises(ParamError, match=says):
        LayerNormConfig(**given)  # type: ignore[arg-type]
