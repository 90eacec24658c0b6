"""The sampling kernel picks the very token the contract's numpy picks."""

from __future__ import annotations

import numpy as np
import pytest

from iron_ops_aie.sample import draw, draw_words

from .conftest import DTYPES

AWKWARD = np.array([0, -0.0, 1, 1, 2, 2, -3, np.inf, -np.inf, np.nan, 1e-40, 88, -88], np.float32)


def pick(kernels, T, logits, words, k_max=64):
    """The token, written to both places."""
    record, token = np.full(3, -1, np.int32), np.full(1, -1, np.int32)
    kernels(f"sample<{T}>", (logits, words, record, token), (logits.size, k_max), scratch=12 * k_max, threads=2)
    assert record.tolist() == [token[0], -1, -1]
    return int(token[0])


def wanted(logits, words, k_max=64):
    with np.errstate(all="ignore"):
        return draw(logits.astype(np.float64), words, k_max)


@pytest.mark.parametrize("T", ["float", "bf16"])
def test_greedy(kernels, rng, T):
    """The largest, the lowest id among equals, at every length around a vector's; NaN is the smallest."""
    for n in (*range(1, 40), 1000, 49152):
        logits = rng.standard_normal(n).astype(DTYPES[T])
        assert pick(kernels, T, logits, draw_words(0, 0, 0)) == wanted(logits, draw_words(0, 0, 0))
        several = rng.choice(AWKWARD, n).astype(DTYPES[T])
        assert pick(kernels, T, several, draw_words(0, 0, 0)) == wanted(several, draw_words(0, 0, 0))


@pytest.mark.parametrize("T", ["float", "bf16"])
def test_draws(kernels, rng, T):
    """Any temperature, k and uniform: the same candidates in the same order, the same sums."""
    for _ in range(400):
        n = int(rng.integers(1, 300))
        ties = rng.random() < 0.5
        logits = (rng.integers(-4, 4, n) if ties else rng.standard_normal(n) * 5).astype(DTYPES[T])
        uniform = int(rng.choice([0, 1, 2**53 - 1, rng.integers(0, 2**53)]))
        words = draw_words(float(rng.choice([1e-30, 0.1, 0.7, 1, 50])), int(rng.integers(-2, 80)), uniform)
        k_max = int(rng.choice([1, 5, 64]))
        assert pick(kernels, T, logits, words, k_max) == wanted(logits, words, k_max)


def test_draws_from_awkward_logits(kernels, rng):
    """Infinities, NaNs and signed zeros among the candidates: still one answer, the contract's."""
    for _ in range(400):
        logits = rng.choice(AWKWARD, int(rng.integers(1, 40)))
        words = draw_words(float(rng.choice([-1, np.nan, 0.5, 1])), int(rng.integers(1, 50)), int(rng.integers(0, 2**53)))
        assert pick(kernels, "float", logits, words) == wanted(logits, words)
