"""`Embedding` alone: rows of ids, or of one token."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iron_core.errors import ParamError
from iron_lm.parts.embedding import Embedding, EmbeddingConfig
from iron_lm.run import Run
from iron_lm.testing import check_part


@settings(max_examples=12)
@given(
    config=st.builds(EmbeddingConfig, st.integers(1, 50), st.integers(1, 40), st.sampled_from((1.0, 8.0, 25.3))),
    rows=st.integers(1, 20),
    decoded=st.integers(0, 4),
    seed=st.integers(0, 99),
)
def test_it_is_its_twin(config: EmbeddingConfig, rows: int, decoded: int, seed: int, backend: str, run: Run) -> None:
    """Tables and scales of any size; a prompt's ids in chunks, then a token a call."""
    ids = np.random.default_rng(seed).integers(0, config.vocab_size, rows + decoded).astype(np.int32)
    report = check_part(Embedding(config, run), run, ids, rows, seed=seed, backend=backend)
    assert report.passed, report.lines()


@pytest.mark.parametrize(("sizes", "says"), [((0, 4), "vocab_size=0"), ((4, 0), "hidden_size=0"), ((4, 4, -1.0), "scale=-1.0")])
def test_a_config_that_cannot_be_is_refused(sizes: tuple[float, ...], says: str) -> None:
    """By field and value."""
    with pytest.raises(ParamError, match=says):
        EmbeddingConfig(*sizes)  # type: ignore[arg-type]
