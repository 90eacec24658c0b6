"""`GEMV` and `GEMM`: products with dense weights, their batches, layouts, bounds and dtypes."""

from __future__ import annotations

import math

import numpy as np
import pytest

import iron_core as iron
from iron_core.declare.formats import Q4_0, Q4_1, Q8_0, bfloat16
from iron_core.declare.infer import infer
from iron_core.errors import FormatError, ParamError, ShapeError
from iron_ops_aie import GEMM, GEMV, Quantize

F32 = np.float32


def naive(a, b):
    """The sum of products, one number at a time, in Python's floats."""
    return np.array([[sum(float(x) * float(y) for x, y in zip(r, c, strict=True)) for c in b.T] for r in a])


# -- GEMV -------------------------------------------------------------------------------------------


def test_a_matrix_times_a_vector(rng):
    """One matrix, one vector, no batch dimension."""
    op = GEMV(M=5, K=7, T=F32)
    a, b = rng.standard_normal((5, 7)).astype(F32), rng.standard_normal(7).astype(F32)
    assert op.shape("C") == (5,)
    assert np.allclose(op.reference(a, b), naive(a, b[:, None])[:, 0], rtol=1e-12)


@pytest.mark.parametrize(("batches", "repeat"), [(4, 1), (4, 2), (6, 3), (3, 3)])
def test_repeat_batches_share_a_matrix(batches, repeat, rng):
    """Batch b reads matrix b // repeat."""
    op = GEMV(M=3, K=5, num_batches=batches, repeat=repeat, T=F32)
    assert op.num_matrices == batches // repeat
    assert op.shape("A") == ((batches // repeat, 3, 5) if batches > repeat else (3, 5))
    a, b = rng.standard_normal(op.shape("A")).astype(F32), rng.standard_normal((batches, 5)).astype(F32)
    c = op.reference(a, b)
    for i in range(batches):
        assert np.allclose(c[i], a.reshape(-1, 3, 5)[i // repeat] @ b[i], rtol=1e-5)


def test_shapes_say_how_many_batches_and_matrices(rng):
    """Only `repeat` is hidden, and a mismatch says which would fit."""
    fields = infer(GEMV, {"A": ((2, 3, 5), GEMV(M=1, K=1).A.format), "B": ((6, 5), GEMV(M=1, K=1).A.format)}, {"repeat": 3})
    assert (fields["num_matrices"], fields["num_batches"], fields["M"], fields["K"]) == (2, 6, 3, 5)
    with pytest.raises(ParamError, match=r"num_matrices=2 times repeat=1 is not num_batches=6. Legal: repeat=3."):
        GEMV(M=3, K=5, num_matrices=2, num_batches=6)
    with pytest.raises(ParamError, match=r"is not num_batches=5.$"):
        GEMV(M=3, K=5, num_matrices=2, num_batches=5)
    with pytest.raises(ParamError, match="repeat=0; legal: 1 or more"):
        GEMV(M=3, K=5, repeat=0)


@pytest.mark.parametrize("n", [0, 1, 4])
def test_a_bound_on_m_leaves_the_first_outputs(n, rng):
    """Also of several matrices; a bound may leave nothing."""
    op = GEMV(M=4, K=5, num_batches=2, T=F32)
    a, b = rng.standard_normal((2, 4, 5)).astype(F32), rng.standard_normal((2, 5)).astype(F32)
    small = op.bounded(M=n).reference(a[:, :n], b)
    assert small.shape == (2, n) and (small == op.reference(a, b)[:, :n]).all()


# -- GEMM -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("b_col_maj", [False, True])
@pytest.mark.parametrize("c_col_maj", [False, True])
def test_layout_flags_transpose_operands_and_nothing_else(b_col_maj, c_col_maj, rng):
    """B as (N, K) and C as (N, M) hold the same numbers."""
    op = GEMM(M=3, K=5, N=4, b_col_maj=b_col_maj, c_col_maj=c_col_maj, T=F32)
    a, b = rng.standard_normal((3, 5)).astype(F32), rng.standard_normal((5, 4)).astype(F32)
    c = op.reference(a, b.T if b_col_maj else b)
    assert op.shape("B") == ((4, 5) if b_col_maj else (5, 4))
    assert c.shape == op.shape("C") == ((4, 3) if c_col_maj else (3, 4))
    assert np.allclose(c.T if c_col_maj else c, naive(a, b), rtol=1e-12)


@pytest.mark.parametrize("m", [0, 1, 3])
@pytest.mark.parametrize("k", [0, 1, 5])
def test_bounds_on_rows_and_depth(m, k, rng):
    """Only the first rows of A, and of each the first k numbers, count; none leave zeros."""
    op = GEMM(M=3, K=5, N=4, T=F32)
    a, b = rng.standard_normal((3, 5)).astype(F32), rng.standard_normal((5, 4)).astype(F32)
    c = op.bounded(M=m, K=k).reference(a[:m, :k], b[:k])
    assert c.shape == (m, 4) and np.allclose(c, naive(a[:m, :k], b[:k]).reshape(m, 4))


def test_activations_weights_and_output_have_dtypes_of_their_own(rng):
    """The output follows the activations unless it is named."""
    op = GEMM(M=2, K=32, N=3, b_col_maj=True, W=np.float16, T=F32)
    assert (op.A.dtype, op.B.dtype, op.C.dtype) == (np.float32, np.float16, np.float32)
    assert GEMM(M=2, K=3, N=4).C.dtype == bfloat16
    assert GEMV(M=2, K=3, T=bfloat16, O=F32).C.dtype == np.float32
    a, b = rng.standard_normal((2, 32)).astype(F32), rng.standard_normal((3, 32)).astype(np.float16)
    assert np.allclose(op.reference(a, b), naive(a, b.T), rtol=1e-12)


def test_integers_are_multiplied_exactly(rng):
    """int64 sums, where float64 would round."""
    op = GEMM(M=1, K=3, N=1, T=np.int32)
    a, b = np.array([[2**30, 3, -(2**30)]], np.int32), np.array([[2**30], [5], [2**30]], np.int32)
    assert op.reference(a, b).tolist() == [[15]]


@pytest.mark.parametrize("cls", [GEMV, GEMM])
def test_wrong_products_are_refused(cls):
    """Each message says what would be legal."""
    n = {} if cls is GEMV else dict(N=4)
    name = cls.__name__
    with pytest.raises(ParamError, match=f"{name}: activations='int4'. Legal: exact, int8_block"):
        cls(M=2, K=32, activations="int4", **n)
    with pytest.raises(ParamError, match=f"{name}: activations='int8_block' needs block-quantised weights; these are float32"):
        cls(M=2, K=32, T=F32, activations="int8_block", **n)
    with pytest.raises(ParamError, match="legal: all floats or all integers"):
        cls(M=2, K=32, T=F32, W=np.int8, **n)
    with pytest.raises(ParamError, match="legal: all floats or all integers"):
        cls(M=2, K=32, T=np.int8, W=Q4_1, **n | ({} if cls is GEMV else dict(b_col_maj=True)))
    with pytest.raises(FormatError, match=r"a row of 48 is not whole blocks of 32. Nearest: 32, 64"):
        cls(M=2, K=48, W=Q8_0, **n | ({} if cls is GEMV else dict(b_col_maj=True)))


def test_block_weights_of_gemm_are_rows_of_k():
    """Blocks run along K, so B is (N, K)."""
    with pytest.raises(ParamError, match=r"q4_0 weights are rows of K; give B as \(N, K\) with b_col_maj=True"):
        GEMM(M=2, K=32, N=4, W=Q4_0)


def test_operands_that_disagree_name_both():
    """As every shape error."""
    dense = GEMV(M=1, K=1).A.format
    with pytest.raises(ShapeError, match=r"B \(6,\) says K=6, A \(3, 5\) says K=5"):
        infer(GEMV, {"A": ((3, 5), dense), "B": ((6,), dense)}, {})


@pytest.mark.parametrize("cls", [GEMV, GEMM])
@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (dict(scale=2.0), "scale=2.0 with T=bfloat16, .* legal: integers of activations and weights, floats O"),
        (dict(scale=0.5, T=np.int8, O=np.int32), "scale=0.5 with T=int8"),
        (dict(rows_scaled=True, T=np.int8, O=np.int32), "row_scale= with T=int8"),
        (dict(rows_scaled=True), "row_scale= with T=bfloat16"),
        (dict(scale=2.0, W=np.int8), "legal: all floats or all integers"),
        (dict(scale=0.0, T=np.int8, O=np.float32), "scale=0.0; legal: a positive float32"),
        (dict(scale=1e-60, T=np.int8, O=np.float32), "scale=1e-60; legal: a positive float32"),
        (dict(scale=1e60, T=np.int8, O=np.float32), r"scale=1e\+60; legal: a positive float32"),
        (dict(scale=math.inf, T=np.int8, O=np.float32), "scale=inf; legal"),
    ],
)
def test_a_scale_is_of_integers_made_floats(cls, fields, words):
    """Of all sums or of a row's."""
    with pytest.raises(ParamError, match=f"{cls.__name__}: .*{words}"):
        cls(M=8, K=8, **fields, **({} if cls is GEMV else dict(N=8)))


class Scaled(iron.Graph):
    """Rows of int8 times a weight (N, K), by GEMM, and each row alone by GEMV."""

    def __init__(self, made):
        self.made = made

    def body(self, x, w, rows):
        more = dict(O=self.made, scale=0.37)
        batched = GEMV(w, x, repeat=x.shape[0], row_scale=rows, **more)
        return GEMM(x, w, b_col_maj=True, row_scale=rows, **more), batched, GEMM(x, w, b_col_maj=True, **more)


@pytest.mark.parametrize("made", [F32, bfloat16])
def test_the_scale_of_a_row_multiplies_its_sums(made, rng):
    """float(sum) * (scale * row_scale), each rounded to float32, then to the dtype of C; by GEMM and by GEMV."""
    x, w = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((5, 70), (33, 70)))
    rows = rng.standard_normal(5).astype(F32)
    graph = Scaled(made)
    got = graph.compile(backend="host", x=(x.shape, x.dtype), w=(w.shape, w.dtype), rows=(rows.shape, rows.dtype))(x, w, rows)
    sums = (x.astype(np.int64) @ w.T.astype(np.int64)).astype(F32)
    want = (sums * (F32(0.37) * rows)[:, None]).astype(made)
    assert np.array_equal(got[0], want) and np.array_equal(got[1], want)
    assert np.array_equal(got[2], (sums * F32(0.37)).astype(made))
    exact = graph.reference(x, w, rows)[0].astype(float)
    assert np.allclose(exact, sums.astype(float) * 0.37 * rows[:, None], rtol=1e-6 if made == F32 else 2**-8)


def test_int8_with_scales_is_near_the_floats_product(rng):
    """Quantize, GEMM and the scales on the way out: as near as 127 units of each tensor allow."""

    class Product(iron.Graph):
        def body(self, a, b):
            sa, sb = 4 / 127, 4 / 127
            return GEMM(Quantize(a, scale=sa), Quantize(b, scale=sb), O=np.float32, scale=sa * sb)

    a, b = (rng.standard_normal(shape).astype(np.float32).clip(-4, 4) for shape in ((24, 96), (96, 40)))
    graph = Product()
    got = graph.compile(backend="host", a=(a.shape, a.dtype), b=(b.shape, b.dtype))(a, b)
    assert np.array_equal(got, graph.reference(a, b))
    bound = 2 / 127 * (np.abs(a).sum(1)[:, None] + np.abs(b).sum(0)) + 96 * (2 / 127) ** 2
    assert (np.abs(got - a @ b) <= bound).all() and np.abs(got - a @ b).max() < 0.05 * np.abs(a @ b).max()
