"""`Head` alone: a matrix of its own, or the embedding's table."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iron_core.errors import ParamError
from iron_lm.parts.embedding import Embedding, EmbeddingConfig
from iron_lm.parts.head import Head, HeadConfig
from iron_lm.run import Run
from iron_lm.testing import check_part


@settings(max_examples=12)
@given(
    config=st.builds(HeadConfig, st.integers(1, 60), st.integers(1, 40), st.sampled_from((None, 2.0, 30.0))),
    tied=st.booleans(),
    seed=st.integers(0, 99),
)
def test_it_is_its_twin(config: HeadConfig, tied: bool, seed: int, backend: str, run: Run) -> None:
    """Any sizes, with a cap or none; a tied one needs the table alone."""
    table = Embedding(EmbeddingConfig(config.vocab_size, config.hidden_size), run) if tied else None
    head = Head(config, run, table)
    assert list(head.tensors()) == (["tied.table"] if tied else ["matrix"])
    x = 3 * np.random.default_rng(seed).standard_normal((2, config.hidden_size)).astype(np.float32)
    report = check_part(head, run, x, 0, seed=seed, backend=backend)
    assert report.passed, report.lines()


def test_a_cap_bends(run: Run) -> None:
    """No logit leaves it, and small ones stay as they are."""
    head = Head(HeadConfig(3, 1, cap=2.0), run)
    got = head.twin({"matrix": np.array([[0.01], [2], [100]], np.float32)}, np.ones((1, 1), np.float32))
    np.testing.assert_allclose(got[0], [0.01, 2 * np.tanh(1), 2], rtol=1e-4)


def test_a_config_that_cannot_be_is_refused() -> None:
    """By field and value."""
    with pytest.raises(ParamError, match=r"cap=0.0; legal: a positive number"):
        HeadConfig(4, 4, cap=0.0)
