"""Which token comes next: draw words by position, and the distribution the draws follow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from iron_core.errors import UsageError
from iron_lm.generation.sampler import Sampler, kl_divergence
from iron_lm.parts.decoder import K_MAX
from iron_ops_aie import Sample

VOCAB = 200


def draw(logits: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The token each row of draw words picks from the same logits, by the operator's reference."""
    op = Sample(vocab=len(logits), steps=1, k_max=K_MAX, T=np.float32)
    found = [op.reference(logits, row, np.zeros(1, np.int32)) for row in rows]
    return np.array([int(np.ravel(out[-1] if isinstance(out, tuple) else out)[0]) for out in found])


@pytest.fixture
def logits(rng: np.random.Generator) -> np.ndarray:
    return (3 * rng.standard_normal(VOCAB)).astype(np.float32)


def test_temperature_0_is_greedy(logits: np.ndarray) -> None:
    """All rows are zero, which the operator reads as: the largest."""
    rows = Sampler().rows(5)
    assert rows.shape == (5, 4) and rows.dtype == np.int32 and not rows.any()
    assert (draw(logits, rows) == logits.argmax()).all()


def test_a_draw_depends_on_seed_and_position_alone() -> None:
    """Longer caches draw the same at the positions they share; another seed draws otherwise."""
    short, long = Sampler(0.7, 40, 5).rows(16), Sampler(0.7, 40, 5).rows(4096)
    np.testing.assert_array_equal(short, long[:16])
    assert (Sampler(0.7, 40, 6).rows(16)[:, 2:] != short[:, 2:]).any(1).all()
    assert len({tuple(row) for row in long.tolist()}) == 4096


@pytest.mark.parametrize(("temperature", "top_k"), [(1.0, 64), (0.5, 64), (2.0, 7)])
def test_draws_follow_the_softmax_of_the_candidates(logits: np.ndarray, temperature: float, top_k: int) -> None:
    """Over 4000 positions each of the top-k tokens comes as often as numpy's softmax says, and no other does."""
    n = 4000
    drawn = draw(logits, Sampler(temperature, top_k, 1).rows(n))
    best = np.argsort(-logits)[:top_k]
    p = np.exp((logits[best].astype(np.float64) - logits.max()) / temperature)
    p /= p.sum()
    counts = np.array([(drawn == token).sum() for token in best])
    assert counts.sum() == n
    assert (np.abs(counts - n * p) <= 5 * np.sqrt(n * p * (1 - p)) + 1).all()


def test_one_candidate_is_greedy_at_any_temperature(logits: np.ndarray) -> None:
    """top_k 1 leaves nothing to draw; so does a temperature near 0."""
    for sampler in (Sampler(3.0, 1, 0), Sampler(1e-30, 50, 0), Sampler(1e-60, 50, 0)):
        assert (draw(logits, sampler.rows(50)) == logits.argmax()).all()


def test_more_candidates_than_the_operator_keeps_are_as_many_as_it_keeps(logits: np.ndarray) -> None:
    """Whatever number stands for `all of them` draws as K_MAX does where the graph draws."""
    for top_k in (K_MAX + 1, 2**31, 10**20):
        assert np.array_equal(Sampler(1.0, top_k, 3).rows(20), Sampler(1.0, K_MAX, 3).rows(20))


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (dict(temperature=-1), "temperature=-1; legal"),
        (dict(temperature=float("nan")), "temperature=nan"),
        (dict(temperature=float("inf")), "temperature=inf"),
        (dict(top_k=0), "top_k=0; legal: a whole number, 1 or more"),
        (dict(seed=-1), "seed=-1; legal: a whole number, 0 or more"),
    ],
)
def test_values_out_of_range_are_refused(values: dict[str, Any], says: str) -> None:
    """Each names the keyword, the value and what is legal."""
    with pytest.raises(UsageError, match=says):
        Sampler(**values)


def test_the_divergence_is_of_distributions(rng: np.random.Generator) -> None:
    """It is 0 for logits that differ by a constant, positive otherwise, and the textbook sum."""
    a, b = rng.standard_normal((2, 3, 50))
    np.testing.assert_allclose(kl_divergence(a, a + 7), 0, atol=1e-12)
    p, q = (np.exp(x) / np.exp(x).sum(-1, keepdims=True) for x in (a, b))
    np.testing.assert_allclose(kl_divergence(a, b), (p * np.log(p / q)).sum(-1))
    assert (kl_divergence(a, b) > 0).all()
