"""`Quantize`: int8 with one scale, the same integers on every backend, and what it refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import iron_core as iron
from iron_core import array_key, bfloat16
from iron_core.array.build import build
from iron_core.devices import device
from iron_core.errors import ParamError, Unresolvable
from iron_ops_aie import Quantize, QuantizeRows
from iron_sim.run import simulate

F32 = np.dtype(np.float32)
BACKENDS = ("reference", "host")


def run(backend, x, cls=Quantize, **fields):
    class One(iron.Graph):
        def body(self, x):
            return cls(x, **fields)

    return One().compile(backend=backend, x=(x.shape, x.dtype))(x)


@pytest.mark.parametrize("backend", BACKENDS)
def test_integers_of_a_given_scale(backend):
    """To the nearest even number; held at 127 on both sides; a NaN is 0."""
    x = np.array([0.5, 1.5, 2.5, -2.5, 126.5, 127.5, 1e30, -1e30, math.inf, -math.inf, math.nan, 0.49], F32)
    want = [0, 2, 2, -2, 126, 127, 127, -127, 127, -127, 0, 0]
    assert run(backend, x, scale=1.0).tolist() == want
    assert run(backend, x * F32.type(0.25), scale=0.25).tolist() == want
    assert run(backend, x, scale=1.0).dtype == np.int8


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_scale_that_fits(backend):
    """The largest becomes 127, and the scale comes out too; of nothing but zeros, or with an infinity, all are 0."""
    x = np.array([[3.0, -6.35, 0.05], [1.0, math.nan, 0.024]], F32)
    y, scale = run(backend, x)
    assert y.tolist() == [[60, -127, 1], [20, 0, 0]] and scale.tolist() == [F32.type(6.35) / F32.type(127)]
    for one, found in ((0.0, 0.0), (math.inf, math.inf), (1e-38, F32.type(1e-38) / F32.type(127))):
        y, scale = run(backend, np.array([one, 0, -0.0], F32))
        assert not y.any() and scale.tolist() == [found]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-(2.0**30), 2.0**30, width=32), min_size=1, max_size=70), st.booleans())
def test_the_host_gives_the_references_integers(numbers, narrow):
    """Whatever the numbers and their dtype."""
    x = np.array(numbers, bfloat16 if narrow else F32)
    for fields in (dict(), dict(scale=0.37), dict(scale=1e6)):
        got, want = run("host", x, **fields), run("reference", x, **fields)
        for g, w in zip(got, want, strict=True) if isinstance(got, tuple) else ((got, want),):
            assert g.tobytes() == w.tobytes()


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 5), st.integers(2, 70), st.booleans(), st.integers(0, 2**32 - 1))
def test_each_row_is_quantized_as_if_it_were_alone(rows, cols, narrow, seed):
    """By both backends; numbers of all sizes, zeros, infinities and NaN among them."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, cols)) * 10 ** rng.uniform(-45, 38, (rows, 1))
    with np.errstate(over="ignore"):
        x = np.where(rng.random(x.shape) < 0.05, rng.choice([0, -0.0, math.inf, math.nan], x.shape), x).astype(bfloat16 if narrow else F32)
    for backend in BACKENDS:
        y, found = run(backend, x, QuantizeRows)
        assert (y.shape, y.dtype, found.shape, found.dtype) == (x.shape, np.int8, (rows,), F32)
        for row, integers, scale in zip(x, y, found, strict=True):
            alone, one = run("reference", row)
            assert np.array_equal(alone, integers) and one.tobytes() == scale.tobytes()


@pytest.mark.parametrize("dev", ["npu1", "npu2"])
def test_numbers_come_back_within_half_a_unit(dev, rng):
    """From a simulated array: y * scale is x, as far as 127 units go."""
    x = rng.standard_normal(2048).astype(bfloat16)
    found, _, _ = simulate(Quantize(size=2048), dev, {"x": x})
    back = found["y"].astype(float) * float(found["found"][0])
    assert np.abs(back - x.astype(float)).max() <= float(found["found"][0]) * 0.5001
    assert np.abs(found["y"]).max() == 127


@pytest.mark.parametrize("valid", [1, 1537, 4095])
def test_a_bound_within_a_line_counts_no_number_behind_it(valid, rng):
    """Given as far as it goes: an integer depends on its own number alone."""
    op = Quantize(size=4096, scale=0.04)
    x = rng.standard_normal(valid).astype(bfloat16)
    made = iron.OperatorImage(op, bounds=("valid",), backend="sim", dev="npu2")(x, valid=valid)
    assert np.array_equal(made, Quantize(size=valid, scale=0.04).reference(x))


def test_one_array_serves_every_scale():
    """It is given it as a word."""
    ops = [Quantize(size=4096, scale=scale).resolved("npu2") for scale in (0.5, 5 / 127)]
    assert array_key(ops[0]) == array_key(ops[1])
    assert build(ops[0], "npu2").design.array is build(ops[1], "npu2").design.array


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: Quantize(size=4, scale=0.0), ParamError, "scale=0.0; legal: a positive float32, or None"),
        (lambda: Quantize(size=4, scale=-1), ParamError, "scale=-1; legal: a positive float32"),
        (lambda: Quantize(size=4, scale=math.nan), ParamError, "scale=nan; legal"),
        (lambda: Quantize(size=4, scale=1e39), ParamError, "scale=1e\\+39; legal"),
        (lambda: Quantize(size=4, scale="0.5"), ParamError, "scale='0.5'; legal"),
        (lambda: Quantize(size=4, T=np.int32), ParamError, "T=int32; legal: float32, bfloat16, float16"),
        (lambda: Quantize(size=4096, num_aie_columns=2).resolved("npu2"), Unresolvable, "sees all of x. Legal: num_aie_columns=1"),
        (lambda: QuantizeRows(rows=4, cols=64, T=np.int32), ParamError, "T=int32; legal: float32, bfloat16, float16"),
        (lambda: QuantizeRows(rows=4, cols=64, num_channels=2).resolved("npu2"), Unresolvable, "num_channels=2; .* Legal: num_channels=1"),
        (lambda: build(QuantizeRows(rows=4, cols=64), device("npu2"), ("valid",)), Unresolvable, "valid= bounds .* Legal: all rows"),
        (lambda: build(Quantize(size=4096), device("npu2"), ("valid",)), Unresolvable, "no scale= is given. Legal: one of the two"),
    ],
)
def test_what_it_refuses(make, error, words):
    with pytest.raises(error, match=words):
        make()
