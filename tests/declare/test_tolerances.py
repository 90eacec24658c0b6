"""The judge: how far an output may be from the exact result, and what a failure says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import iron_core as iron
from iron_core.declare.rounding import round_to, widen
from iron_core.declare.tolerance import EPS32, Deviation, ulp
from iron_core.errors import DeviationError

FLOATS = [np.dtype(np.float32), np.dtype(np.float16), iron.bfloat16]


class Dot(iron.Operator):
    """One contraction: what a float32 accumulation bound is for."""

    K: int = iron.Param()
    T: Any = iron.DType()
    a = iron.In(K, dtype=T)
    b = iron.In(K, dtype=T)
    y = iron.Out(1, dtype=T)

    def reference(self, a, b):
        return (widen(a) @ widen(b)).reshape(1)

    def magnitude(self, a, b):
        return (np.abs(widen(a)) @ np.abs(widen(b))).reshape(1)

    def tolerance(self):
        return iron.Tolerance(terms=self.K)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_an_ulp_is_the_spacing_at_a_number(dtype):
    """The difference to the next representable number, also among the subnormals."""
    spacing = {1.0: 1.0, 1.5: 1.0, 2.0: 2.0, 1023.0: 512.0}
    one = {4: 2.0**-23, 2: 2.0**-10}[dtype.itemsize] if dtype != iron.bfloat16 else 2.0**-7
    for number, factor in spacing.items():
        assert ulp(number, dtype) == one * factor
        assert ulp(-number, dtype) == one * factor
    assert ulp(0.0, dtype) == ulp(1e-300, dtype) > 0


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_two_ulps_pass_and_three_do_not(dtype):
    """For 16-bit outputs the bound is 2 ulp at the exact value, plus the float32 term."""
    exact = np.array([1.25, -3.0])
    unit = ulp(exact, dtype)
    tolerance = iron.Tolerance()
    tolerance.check((exact + 2 * unit).astype(dtype), exact, dtype)
    far = 16 if dtype == np.float32 else 3
    with pytest.raises(DeviationError, match="allows"):
        tolerance.check((exact + far * unit).astype(dtype), exact, dtype)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 600), st.integers(0, 2**32 - 1), st.sampled_from(FLOATS))
def test_a_float32_accumulation_in_any_order_is_inside_the_formula(K, seed, dtype):
    """The bound is sound: adding products one after another in float32, forwards or backwards, stays within it."""
    op = Dot(K=K, T=dtype)
    rng = np.random.default_rng(seed)
    a, b = (round_to(rng.standard_normal(K) * 100, dtype) for _ in range(2))
    products = a.astype(np.float32) * b.astype(np.float32)
    for order in (products, products[::-1], np.sort(products)):
        total = np.add.accumulate(order, dtype=np.float32)[-1:]
        assert op.check(round_to(total, dtype), op.reference(a, b), a, b).ratio <= 1


def test_an_error_beyond_the_formula_is_found():
    """Dropping the largest term of a contraction is no rounding."""
    op = Dot(K=64, T=np.float32)
    a = np.linspace(1, 2, 64, dtype=np.float32)
    exact = op.reference(a, a)
    with pytest.raises(DeviationError, match=r"Dot.y\[0\]: got .* exact .* error .* allows"):
        op.check((exact - 4).astype(np.float32), exact, a, a)


def test_a_passing_check_reports_how_close_it_was():
    """The deviation has the worst error, its bound, their ratio and how many elements were compared."""
    exact = np.array([1.0, 2.0, 4.0])
    got = exact.astype(np.float32)
    got[1] = np.nextafter(np.float32(2), np.float32(3))
    seen = iron.Tolerance().check(got, exact, np.dtype(np.float32))
    assert seen.error == 2.0**-22 and seen.compared == 3
    assert seen.bound == 2 * 2.0**-22 + 8 * EPS32 * 2
    assert seen.ratio == seen.error / seen.bound
    assert seen.worse(Deviation(compared=5)) == Deviation(seen.error, seen.bound, seen.ratio, 8)


def test_data_movers_and_integers_are_exact():
    """One wrong bit is an error that counts how many differ; NaN equals NaN."""
    got = np.array([1, 2, 3], np.int32)
    iron.Tolerance().check(got, got.astype(np.int64), got.dtype)
    with pytest.raises(DeviationError, match=r"\[2\]: got 3, exact 4; 1 of 3"):
        iron.Tolerance().check(got, np.array([1, 2, 4]), got.dtype)
    numbers = np.array([1, np.nan], np.float32)
    iron.Tolerance(exact=True).check(numbers, numbers, numbers.dtype)
    with pytest.raises(DeviationError, match="exact"):
        iron.Tolerance(exact=True).check(np.nextafter(numbers, 2, dtype=np.float32), numbers, numbers.dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_infinities_and_nans(dtype):
    """Overflow to infinity is right where the exact result is out of range; NaN never passes for a number."""
    big = np.array([1e300, -1e300])
    iron.Tolerance().check(np.array([np.inf, -np.inf], dtype), big, dtype)
    with pytest.raises(DeviationError):
        iron.Tolerance().check(np.array([np.nan], dtype), np.array([1.0]), dtype)
    with pytest.raises(DeviationError):
        iron.Tolerance().check(np.array([np.inf], dtype), np.array([1.0]), dtype)
    with pytest.raises(DeviationError):
        iron.Tolerance().check(np.array([np.inf], dtype), -big[:1], dtype)
    with pytest.raises(DeviationError):
        iron.Tolerance().check(np.array([1.0], dtype), big[:1], dtype)


def test_a_wrong_shape_is_an_error():
    """Nothing is broadcast."""
    with pytest.raises(DeviationError, match="shape"):
        iron.Tolerance().check(np.zeros(3, np.float32), np.zeros((3, 1)), np.dtype(np.float32))


def test_packed_outputs_are_compared_as_bytes():
    """A block format that is moved is the same blocks."""

    class Move(iron.Operator):
        rows: int = iron.Param()
        cols: int = iron.Param()
        W: Any = iron.DType(blocks=True)
        x = iron.In(rows, cols, dtype=W)
        y = iron.Out(rows, cols, dtype=W)

        def reference(self, x):
            return x

    op = Move(rows=2, cols=64, W=iron.Q4_0)
    packed = iron.Q4_0.quantize(np.arange(128, dtype=np.float32).reshape(2, 64))
    assert op.check(packed, packed, packed).compared == packed.nbytes
    with pytest.raises(DeviationError, match=r"Move\.y"):
        op.check(iron.Q4_0.quantize(np.ones((2, 64), np.float32)), packed, packed)


def test_a_testing_tolerance_overrides_the_contracts():
    """An operator known to be coarser on purpose says so beside its cases."""

    class Coarse(iron.UnaryElementwise):
        test = iron.Testing(tolerance=iron.Tolerance(absolute=0.5))

        def reference(self, x):
            return x

    op = Coarse(size=2, T=np.float32)
    op.check(np.array([1.25, 2.0], np.float32), np.array([1.0, 2.0]), np.zeros(2))


def test_allclose_takes_every_float_dtype():
    """What a script asserts with."""
    x = np.linspace(0, 4, 9)
    assert iron.allclose(round_to(x, iron.bfloat16), x)
    assert not iron.allclose(x + 0.5, x)
    assert not iron.allclose(x, x[:-1])
