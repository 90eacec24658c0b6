"""Products with weights in panels: near the exact result, the same for any rows, threads, and whoever made the panels."""

from __future__ import annotations

import numpy as np
import pytest

from iron_host.kernels import PACK_BLOCKS, PANEL_PRODUCT

from .conftest import DTYPES, PANELS

SHAPES = [(1, 1, 1), (3, 5, 40), (5, 33, 96), (13, 70, 37), (16, 64, 64), (29, 24, 100), (100, 40, 33)]


def draw(rng, shape, name):
    return np.ascontiguousarray(rng.standard_normal(shape).astype(np.float32).astype(DTYPES[name]))


def panels_of(kernels, w, name, threads=1):
    """k outermost of 32 rows each; of bfloat16 pairs of k."""
    N, K = w.shape
    deep = K + K % 2 if name == "bf16" else K
    made = np.full((-(-N // 32), 32 * deep), 7, w.dtype)
    kernels(f"pack_panels<{name}>", PACK_BLOCKS(w=w, tiles=made, N=N, K=K, matrices=1), threads=threads)
    return made


def product(kernels, types, x, w, threads=1, in_tiles=1, name="panel_product"):
    (M, K), N = x.shape, w.shape[0]
    c = np.full((M, N), -1, DTYPES[types[2]])
    given = panels_of(kernels, w, types[1]) if in_tiles else w
    slots = PANEL_PRODUCT(x=x, w=given, c=c, M=M, N=N, K=K, in_tiles=in_tiles, x_row=K, c_row=N)
    kernels(f"{name}<{', '.join(types)}>", slots, threads=threads, scratch=4 * (32 * (K + 1) + min(M, 96) * K))
    return c


def test_where_a_panel_has_its_numbers(kernels, rng):
    """Columns beside one another, of bfloat16 two of k each; zeros where there is no row, and behind an odd k."""
    for name in ("float", "bf16", "f16"):
        w = draw(rng, (40, 5), name)
        made = panels_of(kernels, w, name)
        assert np.array_equal(made, panels_of(kernels, w, name, threads=3))
        whole = np.zeros((64, 6), w.dtype)
        whole[:40, :5] = w
        pairs = whole.reshape(2, 32, 3, 2).transpose(0, 2, 1, 3) if name == "bf16" else whole[:, :5].reshape(2, 32, 5).transpose(0, 2, 1)
        assert np.array_equal(made, pairs.reshape(2, -1))


@pytest.mark.parametrize("types", PANELS, ids="-".join)
def test_near_the_exact_product(kernels, rng, types):
    """Every element is within a float32 accumulation's rounding and two units of the output's last place."""
    for M, N, K in SHAPES:
        x, w = draw(rng, (M, K), types[0]), draw(rng, (N, K), types[1])
        wide_x, wide_w = x.astype(np.float64), w.astype(np.float64)
        exact, size = wide_x @ wide_w.T, np.abs(wide_x) @ np.abs(wide_w).T
        got = product(kernels, types, x, w).astype(np.float64)
        ulp = {"float": 2.0**-23, "bf16": 2.0**-7}[types[2]]
        assert (np.abs(got - exact) <= 2 * ulp * np.abs(exact) + (K + 8) * 2.0**-24 * size).all()


@pytest.mark.parametrize("types", PANELS, ids="-".join)
def test_the_bits_of_one_sum_after_another(kernels, rng, types):
    """Whatever rows meet a panel together, as many as tiles have and more, and whatever is asked for from memory meanwhile."""
    for M, N, K in [*SHAPES, (1, 96, 64), (8, 70, 33), (12, 64, 16), (99, 65, 48)]:
        x, w = draw(rng, (M, K), types[0]), draw(rng, (N, K), types[1])
        assert np.array_equal(product(kernels, types, x, w), product(kernels, types, x, w, name="panel_product_naive"))
        assert np.array_equal(product(kernels, types, x, w), product(kernels, types, x, w, in_tiles=0, name="panel_product_naive"))


@pytest.mark.parametrize("types", PANELS, ids="-".join)
def test_a_row_alone_equals_the_row_among_others(kernels, rng, types):
    """Bit for bit, for any number of rows, any number of threads, and panels made beforehand or on the way."""
    for M, N, K in SHAPES:
        x, w = draw(rng, (M, K), types[0]), draw(rng, (N, K), types[1])
        whole = product(kernels, types, x, w)
        assert np.array_equal(product(kernels, types, x, w, in_tiles=0), whole)
        for threads in (2, 7):
            assert np.array_equal(product(kernels, types, x, w, threads), whole)
        for m in range(0, M, 5):
            assert np.array_equal(product(kernels, types, x[m : m + 1].copy(), w), whole[m : m + 1])
