"""`Limbs` and `Magnitude`: float32 in bfloat16, products of it, and how large complex numbers are; kernels on the host and of arrays."""

from __future__ import annotations

import numpy as np
import pytest

import iron_core as iron
from iron_core.array.build import build
from iron_core.array.fit import fit
from iron_core.declare.formats import bfloat16
from iron_core.devices import device
from iron_core.errors import ParamError, ShapeError, Unresolvable
from iron_ops_aie import GEMM, Limbs, Magnitude
from iron_sim.run import simulate

F32 = np.float32


def run(function, backend, *given):
    """What a graph of one function gives."""

    class One(iron.Graph):
        def body(self, x):
            return function(x)

    (x,) = given
    return np.asarray(One().compile(backend=backend, x=(x.shape, x.dtype))(x))


# -- Limbs ------------------------------------------------------------------------------------------


def test_three_limbs_are_the_number(rng):
    """hi + mid + lo, exactly; hi is the nearest bfloat16, mid the nearest to what is left; planes lie hi, mid, hi, lo, mid, hi."""
    x = (rng.standard_normal((3, 32)) * 10 ** rng.uniform(-30, 30, (3, 32))).astype(F32)
    planes = Limbs(rows=3, cols=32).reference(x).astype(bfloat16).astype(np.float64).reshape(3, 6, 32)
    hi, mid, lo = planes[:, 0], planes[:, 1], planes[:, 3]
    assert (hi + mid + lo == x).all()
    assert (hi == x.astype(bfloat16)).all() and (mid == (x - hi).astype(F32).astype(bfloat16)).all()
    assert (planes == np.stack([hi, mid, hi, lo, mid, hi], 1)).all()


@pytest.mark.parametrize("size", [0.0, 2.0**-110, 2.0**-100, 1.0, 2.0**127])
def test_limbs_hold_what_they_say_they_hold(size):
    """The ends of their range, and zero."""
    x = np.array([[size, -size, size * (1 + 2.0**-23), size * (1 + 255 * 2.0**-16)]], F32)
    hi, mid, _, lo, _, _ = Limbs(rows=1, cols=4).reference(x).astype(bfloat16).astype(np.float64).reshape(6, 4)
    assert (hi + mid + lo == x[0]).all()


@pytest.mark.parametrize("spread", [0, 4])
def test_a_product_of_limbs_is_one_of_float32_on_the_host(rng, spread):
    """Within 1e-6 of float64's, of what is added up; a product of the rounded numbers is a thousand times further off."""
    M, K, N = 5, 96, 33
    x = (rng.standard_normal((M, K)) * 10 ** rng.uniform(-spread, spread, (M, K))).astype(F32)
    w = (rng.standard_normal((K, N)) * 10 ** rng.uniform(-spread, spread, (K, N))).astype(F32)
    stacked = Limbs.stacked(w)
    assert stacked.shape == (6 * K, N) and stacked.dtype == bfloat16
    got = run(lambda x: GEMM(Limbs(x), iron.weight(stacked), O=F32), "host", x)
    exact, size = x.astype(float) @ w.astype(float), np.abs(x).astype(float) @ np.abs(w).astype(float)
    assert (np.abs(got - exact) <= 1e-6 * size).all()
    rounded = x.astype(bfloat16).astype(float) @ w.astype(bfloat16).astype(float)
    assert (np.abs(rounded - exact) / size).max() > 5e-4


@pytest.mark.parametrize("dev", ["npu1", "npu2"])
def test_a_product_of_limbs_is_one_of_float32_on_arrays(rng, dev):
    """Within 1e-6 too: cores add in float32."""
    x, w = rng.standard_normal((64, 96)).astype(F32), rng.standard_normal((96, 64)).astype(F32)
    stacked = Limbs.stacked(w)

    class Product(iron.Graph):
        def __init__(self):
            self.w = iron.weight(stacked)

        def body(self, x):
            return GEMM(Limbs(x), self.w, O=F32)

    got = np.asarray(Product().compile(backend="sim", dev=dev, x=(x.shape, x.dtype))(x))
    exact, size = x.astype(float) @ w.astype(float), np.abs(x).astype(float) @ np.abs(w).astype(float)
    assert (np.abs(got - exact) <= 1e-6 * size).all()


def test_what_has_no_limbs_is_refused():
    with pytest.raises(ParamError, match="Limbs: T=bfloat16; legal: float32"):
        Limbs(rows=1, cols=32, T=bfloat16)
    with pytest.raises(ParamError, match="Limbs: out_cols=64, and the other fields make it 192"):
        Limbs(rows=1, cols=32, out_cols=64)
    with pytest.raises(ShapeError, match=r"Limbs.stacked: a weight of shape \[6\]; legal: \(K, N\)"):
        Limbs.stacked(np.zeros(6, F32))


# -- Magnitude --------------------------------------------------------------------------------------


@pytest.fixture
def complex_rows(rng):
    """Rows of 64 re and 64 im, each row of another size: from the smallest numbers there are to where the magnitude overflows."""
    x = rng.uniform(-1, 1, (200, 128)) * 2.0 ** np.linspace(-149, 127.9, 200)[:, None]
    x[:, ::7] = 0
    x[:, 5] *= 2.0**-30
    return x.astype(F32)


def test_a_magnitude_is_within_2e_7_of_itself_on_the_host(complex_rows):
    """At any size; what is larger than float32 has numbers is infinite."""
    op, y = Magnitude(rows=200, cols=128), run(Magnitude, "host", complex_rows)
    re, im = complex_rows[:, :64].astype(float), complex_rows[:, 64:].astype(float)
    exact = np.hypot(re, im)
    inside = (exact < np.finfo(F32).max) & (exact > 2.0**-120)
    assert (np.abs(y - exact)[inside] <= 2e-7 * exact[inside]).all() and inside.mean() > 0.7
    op.check(y, op.reference(complex_rows), complex_rows)


@pytest.mark.parametrize("dev", ["npu1", "npu2"])
def test_a_magnitude_is_within_2e_7_of_itself_on_an_array(complex_rows, dev):
    """By products of float32 and Newton's iteration."""
    op = Magnitude(rows=200, cols=128).resolved(device(dev))
    outputs, _, _ = simulate(op, dev, {"x": complex_rows})
    assert outputs["y"].tobytes() == op.composed(complex_rows).tobytes()
    op.array_check(outputs["y"], op.reference(complex_rows), complex_rows)


def test_numbers_that_are_none_stay_none_on_the_host():
    x = np.array([[np.inf, np.nan, 3.0, 0.0, 1.0, 1.0, 4.0, 0.0]], F32)
    assert np.array_equal(run(Magnitude, "host", x), [[np.inf, np.nan, 5, 0]], equal_nan=True)


def test_what_has_no_magnitude_is_refused():
    with pytest.raises(ParamError, match="Magnitude: T=bfloat16; legal: float32"):
        Magnitude(rows=1, cols=64, T=bfloat16)
    with pytest.raises(ParamError, match="Magnitude: cols=33 is odd; legal: as many re as im"):
        Magnitude(rows=1, cols=33)


# -- their arrays -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dev", ["npu1", "npu2"])
@pytest.mark.parametrize("op", [Limbs(rows=24, cols=96), Magnitude(rows=24, cols=64, num_channels=2)], ids=repr)
def test_a_bounded_call_gives_the_composed_bits(op, dev):
    """Of the rows that it keeps."""
    op = op.resolved(device(dev))
    inputs = op.test.draw(op, np.random.default_rng(0))
    outputs, poison, stats = simulate(op, dev, inputs, {"valid": 5})
    assert outputs["y"][:5].tobytes() == op.composed(inputs["x"])[:5].tobytes() and not poison["y"][:5].any()
    assert stats.elements("x") < inputs["x"].size


@pytest.mark.parametrize(
    ("op", "words", "legal"),
    [
        (Limbs(rows=1, cols=100), "Limbs: cols=100 .* Nearest legal cols: 96 or 128", Limbs(rows=1, cols=128)),
        (Limbs(rows=1, cols=2080), "Limbs: cols=2080; .* Legal: cols=2048", Limbs(rows=1, cols=2048)),
        (Magnitude(rows=1, cols=8256), "Magnitude: cols=8256; .* Legal: cols=8192", Magnitude(rows=1, cols=8192)),
        (Magnitude(rows=1, cols=96), "Magnitude: cols=96 .* Nearest legal cols: 64 or 128", Magnitude(rows=1, cols=64)),
    ],
    ids=repr,
)
def test_what_no_array_takes_is_refused_with_what_one_takes(op, words, legal):
    """The keyword, the rule, the value; and the legal value is accepted."""
    with pytest.raises(Unresolvable, match=words):
        build(op, "npu1")
    fit(build(legal, "npu1").design)
