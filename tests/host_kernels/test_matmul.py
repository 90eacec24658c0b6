"""Dense products: near the exact result, and a row's bits do not depend on the rows or threads it ran with."""

from __future__ import annotations

import ctypes
from concurrent.futures import Future
from functools import partial

import attrs
import numpy as np
import pytest

from iron_host import build, compiler
from iron_host.kernels import PRODUCT

from .conftest import DTYPES, Kernels, called

SHAPES = [(1, 1, 1), (1, 33, 7), (3, 5, 40), (4, 64, 64), (5, 37, 96), (9, 130, 100), (17, 12, 33), (1, 257, 576), (33, 70, 130)]
TYPES = [("float", "float", "float"), ("bf16", "bf16", "bf16"), ("float", "bf16", "float"), ("float", "f16", "bf16")]


def draw(rng, shape, name):
    return np.ascontiguousarray(rng.standard_normal(shape).astype(np.float32).astype(DTYPES[name]))


def product(kernels, types, x, w, by_rows, name="matmul", threads=1, by_columns=False):
    (M, K), N = x.shape, w.shape[0] if by_rows else w.shape[1]
    c = np.full((N, M) if by_columns else (M, N), -1, DTYPES[types[2]])
    row, column = (1, M) if by_columns else (N, 1)
    lies = dict(x_row=K, w_row=w.shape[1], by_rows=by_rows, c_row=row, c_column=column)
    one = dict(batches=1, x_batch=0, w_batch=0, c_batch=0, repeat=1)
    kernels(f"{name}<{', '.join(types)}>", PRODUCT(x=x, w=w, c=c, M=M, N=N, K=K, **lies, **one), threads=threads, scratch=4 * 68 * K)
    return c.T if by_columns else c


@pytest.mark.parametrize("by_rows", [1, 0], ids=["N,K", "K,N"])
@pytest.mark.parametrize("types", TYPES, ids="-".join)
def test_near_the_exact_product(kernels, rng, types, by_rows):
    """Every element is within a float32 accumulation's rounding and two units of the output's last place."""
    for M, N, K in SHAPES:
        x, w = draw(rng, (M, K), types[0]), draw(rng, (N, K) if by_rows else (K, N), types[1])
        wide_x, wide_w = x.astype(np.float64), (w if by_rows else w.T).astype(np.float64)
        exact, size = wide_x @ wide_w.T, np.abs(wide_x) @ np.abs(wide_w).T
        for name in ("matmul", "matmul_naive"):
            got = product(kernels, types, x, w, by_rows, name).astype(np.float64)
            ulp = {"float": 2.0**-23, "bf16": 2.0**-7}[types[2]]
            assert (np.abs(got - exact) <= 2 * ulp * np.abs(exact) + (K + 8) * 2.0**-24 * size).all()


@pytest.mark.parametrize("by_rows", [1, 0], ids=["N,K", "K,N"])
@pytest.mark.parametrize("types", TYPES, ids="-".join)
def test_a_row_alone_equals_the_row_among_others(kernels, rng, types, by_rows):
    """Bit for bit, for any number of rows, any number of threads and either order of C."""
    for M, N, K in SHAPES:
        x, w = draw(rng, (M, K), types[0]), draw(rng, (N, K) if by_rows else (K, N), types[1])
        whole = product(kernels, types, x, w, by_rows)
        for threads in (2, 3, 7):
            assert np.array_equal(product(kernels, types, x, w, by_rows, threads=threads), whole)
        assert np.array_equal(product(kernels, types, x, w, by_rows, by_columns=True), whole)
        for m in range(M):
            assert np.array_equal(product(kernels, types, x[m : m + 1].copy(), w, by_rows), whole[m : m + 1])


@pytest.mark.skipif(compiler.vector_width() not in ("AVX2", "AVX-512"), reason="no processor with AVX2")
def test_a_row_alone_is_the_same_whatever_processor_is_tuned_for(rng):
    """GCC makes two roundings of some multiply-adds for Zen's sake, unless told not to."""
    found = compiler.find()
    if not found.name.startswith("g++"):
        pytest.skip("the tuning is g++'s")
    tuned = attrs.evolve(found, flags=(*found.flags, "-mtune=znver3"))
    template = "matmul<float, float, float>"
    source = build.Unit("matmul.h", template, "tuned").text
    function = ctypes.CDLL(str(build.compiled(source, "tuned", tuned))).tuned
    function.argtypes, function.restype = (ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32), None
    made: Future = Future()
    made.set_result({template: partial(called, function)})
    run = Kernels({template: made})
    types = ("float", "float", "float")
    for M, N, K in SHAPES:
        x, w = draw(rng, (M, K), "float"), draw(rng, (N, K), "float")
        whole = product(run, types, x, w, 1)
        assert all(np.array_equal(product(run, types, x[m : m + 1].copy(), w, 1), whole[m : m + 1]) for m in range(M))


def test_batches_share_matrices_and_rows_keep_their_strides(kernels, rng):
    """Batch b uses matrix b // repeat; columns between the strides stay as they were."""
    batches, repeat, M, N, K = 6, 2, 3, 21, 40
    x, w = draw(rng, (batches, M, K + 5), "float"), draw(rng, (batches // repeat, N, K + 3), "float")
    c = np.full((batches, M, N + 2), 7, np.float32)
    lies = dict(x_row=K + 5, w_row=K + 3, by_rows=1, c_row=N + 2, c_column=1)
    lies |= dict(x_batch=M * (K + 5), w_batch=N * (K + 3), c_batch=M * (N + 2))
    slots = PRODUCT(x=x, w=w, c=c, M=M, N=N, K=K, **lies, batches=batches, repeat=repeat)
    for threads in (1, 4):
        kernels("matmul<float, float, float>", slots, threads=threads)
        exact = np.einsum("bmk,bnk->bmn", x[..., :K].astype(np.float64), np.repeat(w[..., :K], repeat, 0).astype(np.float64))
        assert np.allclose(c[..., :N], exact, rtol=1e-5, atol=1e-5)
        assert (c[..., N:] == 7).all()
