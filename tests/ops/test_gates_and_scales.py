"""`GELU`, `Sigmoid`, `Scale`, `SoftCap`, `RowwiseMul`: against other formulas, at the ends of their ranges, and what is refused."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

import iron_core as iron
from iron_core.errors import ParamError
from iron_ops_aie import GELU, RowwiseMul, Scale, Sigmoid, SoftCap

F32 = np.dtype(np.float32)
BF16 = np.dtype(ml_dtypes.bfloat16)


def run(function, x, backend):
    """What a graph of one operator gives for x."""

    class One(iron.Graph):
        def body(self, x):
            return function(x)

    return np.asarray(One().compile(backend=backend, x=(x.shape, x.dtype))(x))


def test_gelu_is_the_tanh_form():
    """0.5 x (1 + tanh(...)), which it equals where that does not cancel; x far above zero, zero far below."""
    x = np.linspace(-3, 6, 181).astype(F32)
    wide = x.astype(float)
    want = [0.5 * v * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))) for v in wide]
    assert np.allclose(GELU(size=181, T=F32).reference(x), want, rtol=1e-12, atol=1e-16)
    ends = GELU(size=5, T=F32).reference(np.array([1e30, 300.0, 0.0, -300.0, -1e30], F32))
    assert ends.tolist() == [float(np.float32(1e30)), 300.0, 0.0, 0.0, 0.0]


def test_the_exact_gelu_is_xs_share_of_the_normal_distribution():
    """Phi(1) and Phi(-2) as tables have them; it is not the tanh form, and x far above zero, zero far below."""
    y = GELU(size=5, T=F32, approximate="none").reference(np.array([1.0, -2.0, 0.0, 40.0, -40.0], F32))
    np.testing.assert_allclose(y, [0.8413447460685429, -2 * 0.02275013194817921, 0, 40, 0], rtol=1e-15, atol=1e-300)
    x = np.linspace(-4, 4, 81).astype(F32)
    both = [GELU(size=81, T=F32, approximate=form).reference(x) for form in ("none", "tanh")]
    assert 1e-4 < np.abs(both[0] - both[1]).max() < 1e-3


def test_the_contract_of_the_exact_gelu_holds_on_host_everywhere(rng):
    """Numbers of every size, and densely where its tail is small; a NaN stays one, and x far above zero is x."""
    x = np.concatenate([np.exp(rng.uniform(-80, 80, 4000)) * rng.choice([-1, 1], 4000), np.linspace(-14, 14, 4001)]).astype(F32)
    op = GELU(size=x.size, T=F32, approximate="none")
    op.check(run(lambda x: GELU(x, approximate="none"), x, "host"), op.reference(x), x)
    ends = run(lambda x: GELU(x, approximate="none"), np.array([np.nan, np.inf, 1e30, -1e30], F32), "host")
    assert np.isnan(ends[0]) and ends[1:].tolist() == [np.inf, float(F32.type(1e30)), 0.0]


def test_a_form_of_gelu_that_is_none_is_refused():
    """Named with its value."""
    with pytest.raises(ParamError, match="GELU: approximate='erf'; legal: tanh, none"):
        GELU(size=4, approximate="erf")


def test_sigmoid_is_a_gate_from_zero_to_one():
    """One half at zero, and y(x) + y(-x) = 1."""
    x = np.linspace(-30, 30, 601).astype(F32)
    y = Sigmoid(size=601, T=F32).reference(x)
    assert np.allclose(y, [0.5 * (1 + math.tanh(v / 2)) for v in x.astype(float)], rtol=1e-9, atol=1e-15)
    assert np.allclose(y + y[::-1], 1) and y[300] == 0.5
    assert Sigmoid(size=3, T=F32).reference(np.array([1e30, -1e30, -800.0], F32)).tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("backend", ["reference", "host"])
def test_sigmoid_keeps_its_ends(backend):
    """Where float32's exponential leaves its range it is nothing or whole, and a NaN stays one."""
    y = run(Sigmoid, np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 100.0], F32), backend)
    assert np.isnan(y[0]) and y[1:].tolist() == [1.0, 0.0, 1.0, 0.0, 1.0]


def test_the_contract_of_sigmoid_holds_on_host_everywhere(rng):
    """Numbers of every size, and densely where it is neither end."""
    x = np.concatenate([np.exp(rng.uniform(-80, 80, 4000)) * rng.choice([-1, 1], 4000), np.linspace(-95, 95, 4001)]).astype(F32)
    op = Sigmoid(size=x.size, T=F32)
    op.check(run(Sigmoid, x, "host"), op.reference(x), x)


@pytest.mark.parametrize("backend", ["reference", "host"])
def test_gelu_and_soft_cap_keep_their_ends(backend):
    """Where float32's exponential leaves its range, and a NaN stays one."""
    x = np.array([np.nan, np.inf, 1e30, 50.0, -20.0, -1e30, 0.0], F32)
    y = run(GELU, x, backend)
    assert np.isnan(y[0]) and y[1] == np.inf and y[2] == x[2] and y[3] == 50 and abs(y[4]) < 1e-30 and y[5] == 0 and y[6] == 0
    z = run(lambda x: SoftCap(x, cap=30.0), x, backend)
    assert np.isnan(z[0]) and z[1] == 30 and z[2] == 30 and z[5] == -30 and z[6] == 0 and 27.9 < z[3] < 28


def test_the_contract_of_gelu_holds_on_host_everywhere(rng):
    """Numbers of every size, and densely where the argument of the exponential is large."""
    x = np.concatenate([np.exp(rng.uniform(-80, 80, 4000)) * rng.choice([-1, 1], 4000), np.linspace(-12, 12, 4001)]).astype(F32)
    op = GELU(size=x.size, T=F32)
    op.check(run(GELU, x, "host"), op.reference(x), x)


def test_the_contract_of_soft_cap_holds_on_host_everywhere(rng):
    """Where the cap is far away, relative to x itself; where it is near, and never beyond it."""
    x = np.concatenate([np.exp(rng.uniform(-80, 80, 4000)) * rng.choice([-1, 1], 4000), np.linspace(-60, 60, 4001)]).astype(F32)
    for cap in (0.37, 30.0):
        op, y = SoftCap(size=x.size, T=F32, cap=cap), run(lambda x, c=cap: SoftCap(x, cap=c), x, "host")
        op.check(y, op.reference(x), x)
        assert np.abs(y).max() <= np.float32(cap)


@pytest.mark.parametrize("backend", ["reference", "host"])
def test_scale_rounds_once(backend, rng):
    """The factor as a float32 times x, rounded to x's dtype; a factor in bfloat16 is what its caller made of it."""
    x = rng.standard_normal(1000).astype(BF16)
    factor = math.sqrt(1152)
    got = run(lambda x: Scale(x, factor=factor), x, backend)
    assert np.array_equal(got, (x.astype(float) * float(np.float32(factor))).astype(F32).astype(BF16))
    narrow = float(np.asarray(factor).astype(BF16))
    assert narrow == 34.0
    assert np.array_equal(run(lambda x: Scale(x, factor=narrow), x, backend), (x.astype(F32) * 34).astype(BF16))


def test_one_vector_multiplies_every_row(rng):
    """A gain of each column."""
    x, vector = rng.standard_normal((3, 4)).astype(F32), rng.standard_normal(4).astype(F32)
    assert (RowwiseMul(rows=3, cols=4, T=F32).reference(x, vector) == x.astype(float) * vector.astype(float)).all()


@pytest.mark.parametrize("factor", [math.nan, math.inf, 1e39])
def test_a_factor_that_is_no_float32_is_refused(factor):
    """Named with its value."""
    with pytest.raises(ParamError, match=r"Scale: factor=.*; legal: a finite float32"):
        Scale(size=4, factor=factor)


@pytest.mark.parametrize("cap", [0.0, -1.0, math.nan, math.inf])
def test_a_cap_that_caps_nothing_is_refused(cap):
    """Named with its value."""
    with pytest.raises(ParamError, match=r"SoftCap: cap=.*; legal: a positive number"):
        SoftCap(size=4, cap=cap)


@pytest.mark.parametrize("make", [GELU, Sigmoid, lambda **f: Scale(factor=2.0, **f), lambda **f: SoftCap(cap=2.0, **f)])
def test_integers_are_refused(make):
    """They have no such functions."""
    with pytest.raises(ValueError, match="T=int32; legal: float32, bfloat16, float16"):
        make(size=4, T=np.int32)
