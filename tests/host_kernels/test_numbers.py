"""Storage types and exp: every bit pattern, every way to round, in whole vectors and alone."""

from __future__ import annotations

import numpy as np
import pytest

from iron_host.kernels import COPY

from .conftest import DTYPES, EXPONENTIALS

NARROW = ("bf16", "f16")


def convert(kernels, source, target, x, stride=1):
    """`x` as another type; a stride takes numbers one at a time, where neighbours go through vectors."""
    y = np.zeros(len(x) * stride, DTYPES[target])
    kernels(f"copy<{source}, {target}>", COPY(x=x, y=y, loops=1, trips=[len(x)], x_steps=[1], y_steps=[stride]))
    return y[::stride]


def patterns(name):
    """Every bit pattern of a 16-bit type."""
    return np.arange(65536, dtype=np.uint16).view(DTYPES[name])


def awkward_floats(name, rng):
    """Float32s around every number of a 16-bit type: itself, halfway to the next, and a bit to either side of that."""
    exact = patterns(name).astype(np.float32)
    exact = np.sort(exact[np.isfinite(exact)])
    middle = ((exact[1:].astype(np.float64) + exact[:-1]) / 2).astype(np.float32)
    anything = rng.integers(0, 2**32, 100_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    tiny = (2.0 ** rng.uniform(-149, -100, 5000)).astype(np.float32)
    edges = np.array([np.inf, -np.inf, np.nan, -np.nan, 0, -0.0, 65504, 65519.99, 65520, 3.39e38, 1e-45], np.float32)
    around = np.concatenate([np.nextafter(middle, np.float32(np.inf)), np.nextafter(middle, np.float32(-np.inf))])
    return np.concatenate([exact, middle, around, anything, tiny, -tiny, edges])


def assert_same(got, want):
    """The same numbers: equal bits, and where a number is a NaN, any NaN of its sign."""
    assert got.dtype == want.dtype
    unsigned = np.dtype(f"u{got.dtype.itemsize}")
    nan = np.isnan(want.astype(np.float32))
    assert np.array_equal(np.isnan(got.astype(np.float32)), nan)
    assert np.array_equal(got[~nan].view(unsigned), want[~nan].view(unsigned))


@pytest.mark.parametrize("stride", [1, 3], ids=["vectors", "alone"])
@pytest.mark.parametrize("name", NARROW)
def test_widening_is_exact(kernels, name, stride):
    """All 65536 patterns are the float32 that numpy says, subnormals, infinities and signed zeros included."""
    x = patterns(name)
    assert_same(convert(kernels, name, "float", x, stride), x.astype(np.float32))


@pytest.mark.parametrize("stride", [1, 3], ids=["vectors", "alone"])
@pytest.mark.parametrize("name", NARROW)
def test_narrowing_rounds_to_nearest_even(kernels, rng, name, stride):
    """Once, ties to even: halfway cases, subnormal results, what overflows, NaNs that stay NaNs."""
    x = awkward_floats(name, rng)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        want = x.astype(DTYPES[name])
    assert_same(convert(kernels, "float", name, x, stride), want)


@pytest.mark.parametrize(("source", "target"), [("bf16", "f16"), ("f16", "bf16")])
def test_between_narrow_types(kernels, source, target):
    """Through float32, which holds both exactly, so one rounding."""
    x = patterns(source)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        assert_same(convert(kernels, source, target, x), x.astype(np.float32).astype(DTYPES[target]))


def exponentials(kernels, x):
    """Of each number, exp in vectors, exp alone, and exp of what is not above 0."""
    x = np.concatenate([x, np.zeros(-len(x) % 16)]).astype(np.float32)
    vectors, alone, below = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
    kernels("exponentials", EXPONENTIALS(x=x, vectors=vectors, alone=alone, below=below, size=len(x)))
    return x, vectors, alone, below


def test_exp_is_within_two_units(kernels, rng):
    """Over all of float32's range, to 2 units in the last place of the exact result."""
    dense = np.concatenate([np.linspace(-87.2, 88.7228, 200_001), rng.uniform(-1, 1, 50_000), rng.standard_normal(50_000) * 1e-3])
    x, vectors, *_ = exponentials(kernels, dense)
    exact = np.exp(x.astype(np.float64))
    error = np.abs(vectors.astype(np.float64) - exact) / np.spacing(exact.astype(np.float32)).astype(np.float64)
    assert error.max() <= 2


def test_exp_has_the_same_bits_in_a_vector_and_alone(kernels, rng):
    """A number's exponential does not depend on its neighbours."""
    _, vectors, alone, _ = exponentials(kernels, rng.uniform(-100, 100, 40_000))
    assert np.array_equal(vectors.view(np.uint32), alone.view(np.uint32))


def test_exp_of_what_is_not_above_zero_has_the_same_bits(kernels, rng):
    """The shorter way there: down to where the result is 0, at both ends, and of NaN."""
    ends = [-np.inf, -1e30, -88, np.nextafter(np.float32(-87.3), np.float32(-88)), np.float32(-87.3), -87.2, -1e-30, -0.0, 0]
    x = np.concatenate([ends, -rng.uniform(0, 100, 40_000), -(10.0 ** rng.uniform(-40, 3, 10_000)), [np.nan]])
    _, vectors, _, below = exponentials(kernels, x)
    assert np.isnan(below[len(x) - 1])
    assert np.array_equal(below[: len(x) - 1].view(np.uint32), vectors[: len(x) - 1].view(np.uint32))


def test_exp_at_its_ends(kernels):
    """0 for what is too small, inf for what is too large, 1 at 0, NaN stays NaN."""
    _, y, *_ = exponentials(kernels, np.array([-np.inf, -1e30, -104, -88, 0, -0.0, 88.73, 1e30, np.inf, np.nan]))
    assert np.array_equal(y[:10], np.array([0, 0, 0, 0, 1, 1, np.inf, np.inf, np.inf, np.nan], np.float32), equal_nan=True)
    _, y, *_ = exponentials(kernels, np.array([88.72283, -87.2]))
    assert np.isfinite(y[0]) and y[1] > 0  # the last numbers before those ends
