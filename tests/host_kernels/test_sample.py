"""The sampling kernel picks the very token the contract's numpy picks."""

from __future__ import annotations

import numpy as np
import pytest

from iron_host.kernels import SAMPLE
from iron_ops_aie.tokens.draw import draw, draw_words

from .conftest import DTYPES

AWKWARD = np.array([0, -0.0, 1, 1, 2, 2, -3, np.inf, -np.inf, np.nan, 1e-40, 88, -88], np.float32)


def pick(kernels, T, logits, words, k_max=64):
    """The token, written to both places."""
    record, token = np.full(3, -1, np.int32), np.full(1, -1, np.int32)
    slots = SAMPLE(logits=logits, draws=words, tokens=record, token=token, vocab=logits.size, k_max=k_max)
    kernels(f"sample<{T}>", slots, scratch=12 * k_max, threads=2)
    assert record.tolist() == [token[0], -1, -1]
    return int(token[0])


def wanted(logits, words, k_max=64):
    with np.errstate(all="ignore"):
        return draw(logits.astype(np.float64), words, k_max)


@pytest.mark.parametrize("T", ["float", "bf16"])
def test_greedy(kernels, rng, T):
    """The largest, the lowest id among equals, at every length around a vector's."""
    for n in (*range(1, 40), 1000, 49152):
        logits = rng.standard_normal(n).astype(DTYPES[T])
        assert pick(kernels, T, logits, draw_words(0, 0, 0)) == int(np.argmax(logits.astype(np.float32)))
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


@pytest.mark.parametrize("T", ["float", "bf16"])
@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_one_logit_that_is_not_finite_leaves_no_token(kernels, rng, T, bad, temperature):
    """Wherever it stands, within a vector or behind the last; and so do nothing but such."""
    for n in (1, 7, 8, 9, 16, 31, 1000):
        for at in {0, n // 2, n - 1}:
            logits = rng.standard_normal(n).astype(DTYPES[T])
            logits[at] = bad
            assert pick(kernels, T, logits, draw_words(temperature, 5, 2**52)) == -1
        assert pick(kernels, T, np.full(n, bad, DTYPES[T]), draw_words(temperature, 5, 2**52)) == -1


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_largest_numbers_are_finite(kernels, temperature):
    """They are drawn like any other."""
    most = np.finfo(np.float32).max
    logits = np.array([-most, most, most, -most] * 5, np.float32)
    words = draw_words(temperature, 1, 0)
    assert pick(kernels, "float", logits, words) == wanted(logits, words) == 1


def test_draws_from_awkward_logits(kernels, rng):
    """Infinities, NaNs and signed zeros among the candidates: still one answer, the contract's."""
    for _ in range(400):
        logits = rng.choice(AWKWARD, int(rng.integers(1, 40)))
        words = draw_words(float(rng.choice([-1, np.nan, 0.5, 1])), int(rng.integers(1, 50)), int(rng.integers(0, 2**53)))
        assert pick(kernels, "float", logits, words) == wanted(logits, words)
