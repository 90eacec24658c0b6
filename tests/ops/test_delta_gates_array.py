"""The arrays of `DeltaGates` and `Softplus`, simulated: any rows and heads, rows that a bound leaves out, numbers far out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iron_core import bfloat16
from iron_core.devices import device
from iron_ops_aie import DeltaGates, Softplus
from iron_sim.run import simulate

DEVICES = ("npu1", "npu2")
F32 = np.float32


@settings(max_examples=16, deadline=None)
@given(rows=st.integers(1, 80), heads=st.integers(1, 40), dev=st.sampled_from(DEVICES), seed=st.integers(0, 99), data=st.data())
def test_any_rows_open_and_fade(rows, heads, dev, seed, data):
    """In one block or several, heads alike or far from one another: the tile references' bits, and near the formula; NaN behind a bound
    stays there."""
    heads, valid, rng = 2 * heads, data.draw(st.integers(1, rows)), np.random.default_rng(seed)
    a, b = (rng.standard_normal((2, rows, heads)) * 10.0 ** rng.integers(-2, 3, (2, rows, heads))).astype(bfloat16)
    a[valid:] = b[valid:] = np.nan
    bias, rate = rng.standard_normal(heads).astype(F32), -(10 ** rng.uniform(-2, 1, heads)).astype(F32)
    op = DeltaGates(rows=rows, heads=heads)
    outputs, poison, _ = simulate(op, dev, dict(a=a, b=b, bias=bias, rate=rate), {"valid": valid})
    bounded = op.resolved(device(dev)).bounded(rows=valid)
    found = [outputs[name][:valid] for name in ("g", "beta")]
    for got, bits in zip(found, bounded.composed(a[:valid], b[:valid], bias, rate), strict=True):
        assert np.array_equal(got.view(np.uint32), bits.view(np.uint32))
    assert not any(poison[name][:valid].any() for name in outputs)
    wide_a, wide_b = (part[:valid].astype(float) for part in (a, b))
    assert np.allclose(found[0], rate * np.logaddexp(0, wide_a + bias), rtol=1e-5, atol=1e-30)
    assert np.allclose(found[1], 1 / (1 + np.exp(-wide_b)), rtol=1e-5, atol=1e-30)


@pytest.mark.parametrize("dev", DEVICES)
def test_softplus_of_any_bfloat16(rng, dev):
    """Large and small of either sign, zero, and a NaN: rounded once, with the reference's bits."""
    x = np.concatenate([rng.standard_normal(1000) * 10.0 ** rng.integers(-6, 4, 1000), [0.0, -0.0, 1e30, -1e30, np.nan], np.zeros(19)])
    x = x.astype(bfloat16)
    outputs, poison, _ = simulate(Softplus(size=1024), dev, {"x": x}, {})
    (name,) = outputs
    with np.errstate(invalid="ignore"):
        got, want = outputs[name].astype(F32), np.logaddexp(0, x.astype(float))
    assert np.isnan(got[1004]) and not poison[name].any()
    fine = ~np.isnan(want)
    assert np.allclose(got[fine], want[fine], rtol=2.0**-8, atol=1e-38)
