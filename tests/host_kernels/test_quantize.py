"""Numbers as int8: the reference's integers and scales, whatever the processor and wherever a run ends."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from iron_host.kernels import QUANTIZE, QUANTIZE_EACH, QUANTIZE_FITTED
from iron_ops_aie import Quantize, QuantizeRows

from .conftest import DTYPES, FLOATS

ODD = [0.0, -0.0, np.inf, -np.inf, np.nan, 0.5, -1.5, 2.5, 126.5, -127.5]


@pytest.mark.parametrize("t", FLOATS)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 5), st.integers(1, 150), st.integers(1, 4), st.booleans(), st.integers(0, 2**32 - 1))
def test_integers_and_scales(kernels, t, rows, cols, threads, odd, seed):
    """By a scale that is given, by the one that fits all, and by the one that fits each row."""
    rng, dtype = np.random.default_rng(seed), DTYPES[t]
    wide = rng.standard_normal((rows, cols)) * 10 ** rng.uniform(-45, 38, (rows, 1))
    if odd:
        wide = np.where(rng.random(wide.shape) < 0.2, rng.choice(ODD, wide.shape), wide)
    with np.errstate(over="ignore"):
        x = wide.astype(dtype)
    for scale in (1.0, 5 / 127, 1e-30):
        y = np.full(rows * cols + 3, 77, np.int8)
        kernels(f"quantize<{t}>", QUANTIZE(x=x, y=y, valid=x.size, scale=scale), threads=threads)
        assert np.array_equal(y[:-3], Quantize(size=x.size, scale=scale, T=dtype).reference(x.reshape(-1))) and (y[-3:] == 77).all()
    y, found = np.full(rows * cols + 3, 77, np.int8), np.zeros(1, np.float32)
    kernels(f"quantize_fitted<{t}>", QUANTIZE_FITTED(x=x, y=y, found=found, valid=x.size), threads=threads)
    integers, scale = Quantize(size=x.size, T=dtype).reference(x.reshape(-1))
    assert np.array_equal(y[:-3], integers) and (y[-3:] == 77).all() and found.tobytes() == scale.tobytes()
    y, found = np.full(rows * cols + 3, 77, np.int8), np.zeros(rows, np.float32)
    kernels(f"quantize_each<{t}>", QUANTIZE_EACH(x=x, y=y, found=found, valid=rows, cols=cols), threads=threads)
    integers, scales = QuantizeRows(rows=rows, cols=cols, T=dtype).reference(x)
    assert np.array_equal(y[:-3], integers.reshape(-1)) and (y[-3:] == 77).all() and found.tobytes() == scales.tobytes()
