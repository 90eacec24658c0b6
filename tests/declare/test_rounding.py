"""Rounding to a storage dtype happens once, whatever precision the numbers come in."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import iron_core as iron
from iron_core import bfloat16
from iron_core.declare.rounding import floored, round_to, widen

BITS = {iron.bfloat16: (8, -126, 127), np.dtype(np.float16): (11, -14, 15), np.dtype(np.float32): (24, -126, 127)}


def nearest(number: float, dtype: np.dtype) -> float:
    """The definition, in exact arithmetic: the nearest representable number, ties to the even one."""
    precision, low, high = BITS[dtype]
    if number == 0:
        return number
    exponent = max(int(np.frexp(number)[1]) - 1, low)
    unit = Fraction(2) ** (exponent - precision + 1)
    scaled = Fraction(number) / unit
    whole = round(scaled)  # Python rounds a Fraction's ties to even
    value = whole * unit
    limit = (2 - Fraction(2) ** (1 - precision)) * Fraction(2) ** high
    if abs(value) > limit:
        return float(np.copysign(np.inf, number))
    return float(value)


doubles = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(-1e5, 1e5),
    st.floats(-1e-37, 1e-37),
    # Close to halfway between two 16-bit neighbours, where rounding twice goes wrong.
    st.builds(lambda n, e, k: (n + 0.5 + k * 2.0**-36) * 2.0**e, st.integers(128, 4095), st.integers(-30, 20), st.integers(-2, 2)),
)


@pytest.mark.parametrize("dtype", BITS, ids=str)
@settings(max_examples=300, deadline=None)
@given(doubles)
@example(1.0 + 2.0**-8 + 2.0**-40)
@example(1.0 + 2.0**-8 - 2.0**-40)
@example(-0.0)
def test_float64_is_rounded_once_to_nearest_even(dtype, number):
    """The result is the definition's, in every format, subnormals and overflow included."""
    got = round_to(np.array([number]), dtype)
    assert got.dtype == dtype
    assert float(got[0]) == nearest(number, dtype)
    assert np.signbit(got.astype(np.float64)[0]) == np.signbit(number)


def test_by_way_of_float32_would_round_twice():
    """The case the detour is for: just above a tie, float32 falls onto it."""
    number = np.array([1.0 + 2.0**-8 + 2.0**-40])
    assert float(round_to(number, iron.bfloat16)[0]) == 1.0078125
    assert float(number.astype(np.float32).astype(iron.bfloat16)[0]) == 1.0


def test_nan_and_infinity_stay():
    """Whatever the dtype."""
    got = round_to(np.array([np.nan, np.inf, -np.inf]), iron.bfloat16).astype(np.float64)
    assert np.isnan(got[0]) and got[1] == np.inf and got[2] == -np.inf


def test_floats_to_integers_round_and_saturate():
    """Ties to even; out of range is the nearest end, from any float dtype."""
    values = np.array([0.5, 1.5, -2.5, 300.0, -300.0])
    assert round_to(values, np.dtype(np.int8)).tolist() == [0, 2, -2, 127, -128]
    assert round_to(values.astype(np.float32), np.dtype(np.uint8)).tolist() == [0, 2, 0, 255, 0]
    assert round_to(np.array([1.5], iron.bfloat16), np.dtype(np.int32)).tolist() == [2]
    assert round_to(np.array([1e10], np.float32), np.dtype(np.uint32)).tolist() == [2**32 - 1]


def test_integers_to_floats_round_once():
    """An int64 sum does not go through float32 on its way to bfloat16."""
    assert float(round_to(np.array([2**40 + 2**32 + 1]), iron.bfloat16)[0]) == nearest(2**40 + 2**32 + 1, iron.bfloat16)


def test_numbers_of_the_dtype_are_untouched():
    """No copy is made."""
    x = np.ones(3, np.float16)
    assert round_to(x, x.dtype) is x
    assert round_to(np.float64(1.5), iron.bfloat16).shape == ()


def test_widen_is_what_references_compute_in():
    """float64 for floats and block formats, int64 for integers."""
    assert widen(np.ones(2, iron.bfloat16)).dtype == np.float64
    assert widen(np.ones(2, np.uint32)).dtype == np.int64
    assert widen(iron.Q4_0.quantize(np.ones(32, np.float32))).dtype == np.float64


@given(st.floats(width=32, allow_nan=False, allow_infinity=False) | st.floats(-1e39, 1e39))
@example(1 - 2.0**-30)
@example(-1 - 2.0**-30)
def test_floor_is_the_largest_bfloat16_that_is_not_above(x):
    """For every float32, and float64, which is rounded once too."""
    with np.errstate(over="ignore"):
        single = float(np.float32(x)) == x
    for dtype in (np.float64, np.float32) if single else (np.float64,):
        got = floored(np.array([x], dtype))
        above = np.nextafter(got, np.array([np.inf], bfloat16))
        assert got.astype(np.float64)[0] <= x < above.astype(np.float64)[0]


@given(st.integers(0, 0xFFFF))
def test_what_bfloat16_holds_is_its_own_floor(bits):
    """Every one of its 65536 values."""
    exact = np.array([bits], np.uint16).view(bfloat16)
    kept = floored(exact.astype(np.float32))
    assert kept.view(np.uint16)[0] == bits or (np.isnan(kept[0]) and np.isnan(exact[0]))


def test_the_floor_of_infinities_and_nans():
    got = floored(np.array([np.inf, -np.inf, np.nan, -0.0, 3.4e38, -3.4e38], np.float32)).astype(np.float32)
    assert got[0] == np.inf and got[1] == -np.inf and np.isnan(got[2]) and np.signbit(got[3]) and got[3] == 0
    assert np.isfinite(got[4]) and got[4] <= 3.4e38 and got[5] == -np.inf
