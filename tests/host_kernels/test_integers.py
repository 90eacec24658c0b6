"""Products of integers: exact, so the same whatever the processor, the threads and the order; and scaled in one order of roundings."""

from __future__ import annotations

from concurrent.futures import Future

import attrs
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from iron_host import compiler
from iron_host.kernels import INTEGER_PRODUCT

from .conftest import DTYPES, Kernels, builds, built_for, functions

F32 = np.float32
SCALE = 0.37
TYPES = [("int8_t", "int8_t", "int32_t"), ("uint8_t", "int8_t", "int32_t"), ("int8_t", "int8_t", "float"), ("int8_t", "int8_t", "bf16")]
NAMES = ("matmul_integers", "matmul_integers_naive")


def product(kernels, name, types, x, w, by_rows=1, repeat=1, threads=1, by_columns=False, row_scale=None, gap=0):
    """x (batches, M, K), w (matrices, N, K) or (matrices, K, N) -> (batches, M, N); `gap` numbers lie between rows of each."""
    (batches, M, K), N = x.shape, w.shape[1 if by_rows else 2]
    x, w = (np.pad(tensor, [(0, 0), (0, 0), (0, gap)], constant_values=99) for tensor in (x, w))
    rows, columns = (N, M) if by_columns else (M, N)
    c = np.full((batches, rows, columns + gap), -1, DTYPES[types[2]])
    row, column = (1, columns + gap) if by_columns else (columns + gap, 1)
    lies = dict(x_row=K + gap, w_row=w.shape[2], by_rows=by_rows, c_row=row, c_column=column)
    lies |= dict(x_batch=x[0].size, w_batch=w[0].size, c_batch=c[0].size)
    slots = INTEGER_PRODUCT(x=x, w=w, c=c, row_scale=row_scale, scale=SCALE, M=M, N=N, K=K, batches=batches, repeat=repeat, **lies)
    kernels(f"{name}<{', '.join(types)}>", slots, threads=threads, scratch=4 * M)
    assert (c[..., columns:] == -1).all()
    c = c[..., :columns]
    return c.swapaxes(1, 2) if by_columns else c


def exact(types, x, w, by_rows=1, repeat=1, row_scale=None):
    """In int64; a float is the sum as float32, times scale * row_scale, rounded."""
    w = np.repeat(w.swapaxes(1, 2) if by_rows else w, repeat, 0)
    sums = x.astype(np.int64) @ w.astype(np.int64)
    if types[2] == "int32_t":
        return sums
    factor = F32(SCALE) if row_scale is None else (F32(SCALE) * row_scale.reshape(x.shape[:2]))[..., None]
    return (sums.astype(F32) * factor).astype(DTYPES[types[2]])


@pytest.fixture(scope="module", params=[*builds(), "avxvnni"])
def roads(request):
    """The kernels for this processor and older ones; and for those with AVX-VNNI and no AVX-512, if this one runs their code."""
    with_ = built_for("x86-64-v3" if request.param == "avxvnni" else request.param)
    if request.param == "avxvnni":
        if compiler.vector_width() not in ("AVX2", "AVX-512") or " avx_vnni" not in compiler.cpu():
            pytest.skip("no processor with AVX-VNNI")
        with_ = attrs.evolve(with_, flags=(*with_.flags, "-mavxvnni"))
    made: Future = Future()
    made.set_result(functions("integers.h", with_))
    return Kernels(dict.fromkeys(made.result(), made))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    *(st.integers(1, most) for most in (9, 40, 300)),
    st.sampled_from(TYPES),
    st.sampled_from([(1, 1), (4, 1), (4, 2), (3, 3)]),
    st.booleans(),
    st.booleans(),
    st.integers(0, 3),
    st.integers(1, 5),
    st.integers(0, 2**32 - 1),
)
def test_sums_of_any_shape(roads, M, N, K, types, batches, by_rows, by_columns, gap, threads, seed):
    """Signs and ends of every kind; nothing is written between the rows of C."""
    rng = np.random.default_rng(seed)
    (count, repeat), drawn = batches, []
    for name, shape in zip(types[:2], ((count, M, K), (count // repeat, *((N, K) if by_rows else (K, N)))), strict=True):
        end = np.iinfo(DTYPES[name])
        ends = rng.choice([end.min, end.min + 1, end.max], shape)
        drawn.append(np.where(rng.random(shape) < 0.3, ends, rng.integers(end.min, end.max + 1, shape)).astype(end.dtype))
    scales = None if rng.random() < 0.3 else rng.standard_normal(count * M).astype(F32)
    given = dict(by_rows=int(by_rows), repeat=repeat, row_scale=scales)
    for name in NAMES:
        got = product(roads, name, types, *drawn, **given, threads=threads, by_columns=by_columns, gap=gap)
        assert np.array_equal(got, exact(types, *drawn, **given)), name


@pytest.mark.parametrize(
    ("x", "w", "K"), [(-128, -128, 131071), (127, -128, 131071), (-128, 127, 4099), (-127, -127, 133000), (127, 127, 133000)]
)
def test_the_largest_sums(roads, x, w, K):
    """Of numbers that are all at an end: no partial sum is lost, for one row and for several."""
    for M in (1, 5):
        left, right = np.full((1, M, K), x, np.int8), np.full((1, 6, K), w, np.int8)
        for name in NAMES:
            assert (product(roads, name, TYPES[0], left, right) == x * w * K).all()


@pytest.mark.parametrize("types", TYPES, ids="-".join)
@pytest.mark.parametrize("by_rows", [1, 0], ids=["N,K", "K,N"])
def test_threads_share_large_ones(roads, rng, types, by_rows):
    """However many they are; an output is one thread's."""
    ends = [np.iinfo(DTYPES[name]) for name in types[:2]]
    shapes = ((1, 6, 577), (1, 301, 577) if by_rows else (1, 577, 301))
    x, w = (rng.integers(end.min, end.max + 1, shape).astype(end.dtype) for end, shape in zip(ends, shapes, strict=True))
    want = exact(types, x, w, by_rows)
    for threads in (1, 2, 3, 7, 40):
        assert np.array_equal(product(roads, NAMES[0], types, x, w, by_rows, threads=threads), want)
