"""The logistic function in numpy, as references and twins share it."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from iron_ops_aie.logistic import logistic, silu


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_its_ends_are_exact_and_no_warning_is_given(dtype):
    """0 and 1, in the dtype given, where e^-x is infinite or nothing; x times it is nothing, and x."""
    x = np.array([-np.finfo(dtype).max, -1000, 0, 1000, np.finfo(dtype).max], dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shares, products = logistic(x), silu(x)
    assert shares.tolist() == [0, 0, 0.5, 1, 1] and products.tolist() == [0, 0, 0, 1000, float(x[-1])]
    assert shares.dtype == products.dtype == dtype


def test_it_is_the_logistic_function():
    """Of which the values at x and at -x add up to 1."""
    x = np.linspace(-30, 30, 601)
    assert np.allclose(logistic(x), (1 + np.tanh(x / 2)) / 2, rtol=1e-6, atol=1e-15) and np.allclose(silu(x), x * logistic(x), rtol=1e-15)
    assert np.allclose(logistic(x) + logistic(-x), 1, rtol=1e-15)
