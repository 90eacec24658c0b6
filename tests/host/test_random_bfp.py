"""Weights made block floating point on the host, bit for bit, at random shapes, formats and sizes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import iron_core as iron
from iron_host.backend import HostBackend
from iron_ops_flm import DequantBFP


@pytest.mark.slow
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    N=st.integers(1, 3).map(lambda n: 64 * n),
    K=st.integers(1, 3).map(lambda n: 512 * n),
    F=st.sampled_from(("q4nx", "q4nx_signed", "q4nx_zero", "q4nx_q8", "bfp16ebs8")),
    spread=st.integers(0, 30),
    threads=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_blocks_of_any_format(N, K, F, spread, threads, seed):
    """Numbers whose sizes are far apart: many of a block vanish, or are rounded to just below 0."""
    rng = np.random.default_rng(seed)
    op = DequantBFP(N=N, K=K, F=F)
    values = rng.standard_normal((N, K)) * np.exp2(rng.integers(-spread, spread + 1, (N, K)))
    x = op.F.quantize(values.astype(np.float32))
    got = iron.OperatorImage(op, backend=HostBackend(strict=True, threads=threads))(x)
    assert np.array_equal(got.data, op.reference(x).data)
