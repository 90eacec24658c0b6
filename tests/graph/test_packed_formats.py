"""Weights of formats described by planes in graphs: products take them, views keep together what is stored together."""

from __future__ import annotations

import numpy as np
import pytest

import iron_core as iron
from iron_core.errors import FormatError, ParamError, TraceError
from iron_ops_aie import GEMM, GEMV, Copy, Dequant
from tests.layouts import BFP16EBS8, EVERY, GPTQ, INT8_TENSOR, Q4NX

F32 = np.dtype(np.float32)
SHAPE = (64, 256)


def drawn(format, shape=SHAPE):
    return format.quantize(np.random.default_rng(1).standard_normal(shape).astype(F32))


class Product(iron.Graph):
    """x times a weight transposed: GEMV for a row, GEMM for more."""

    def __init__(self, w, cut=None, activations="exact"):
        self.w = iron.weight(w)
        self.cut, self.activations = cut, activations

    def body(self, x):
        w = self.w if self.cut is None else self.w[self.cut]
        if x.ndim == 1:
            return GEMV(w, x, activations=self.activations)
        return GEMM(x, w, b_col_maj=True, activations=self.activations)


@pytest.mark.parametrize("rows", (1, 3))
@pytest.mark.parametrize("format", EVERY, ids=str)
def test_products_take_any_packed_weight(format, rows):
    """The reference computes with the numbers the format stands for."""
    w = drawn(format)
    x = np.random.default_rng(2).standard_normal((rows, 256)[rows == 1 :]).astype(F32)
    y = Product(w).compile(backend="reference", x=(x.shape, F32))(x)
    assert np.allclose(y, x @ w.dequantize().T, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("format", [f for f in EVERY if f.group], ids=str)
def test_activations_are_rounded_by_the_weights_group(format):
    """int8_block rounds x to int8 for every scale of the weight, and 32 numbers at a time where one stands for more."""
    w, x = drawn(format), np.random.default_rng(2).standard_normal((3, 256)).astype(F32)
    y = Product(w, activations="int8_block").compile(backend="reference", x=(x.shape, F32))(x)
    groups = x.reshape(3, -1, min(format.group, 32))
    scale = np.abs(groups).max(-1, keepdims=True) / 127
    rounded = (np.rint(groups / scale) * scale).reshape(3, 256)
    assert np.allclose(y, rounded @ w.dequantize().T, rtol=1e-5, atol=1e-3) and not np.allclose(y, x @ w.dequantize().T, atol=1e-4)


def test_a_scale_a_row_leaves_activations_as_they_are():
    """Where a row has one scale there is no group to round by."""
    with pytest.raises(ParamError, match="int8_block' needs block-quantised weights; these are int8_tensor"):
        GEMV(M=4, K=8, W=INT8_TENSOR, activations="int8_block")


def test_minima_may_be_finer_than_scales_where_activations_are_exact():
    """A minimum for 16 numbers and a scale for 32: exact products add each where it belongs, int8_block has no such sum."""
    planes = (
        iron.Plane("scales", "float16", group=(1, 32)), iron.Plane("minima", "float16", group=(1, 16)), iron.Plane("values", "uint4"),
    )  # fmt: skip
    fine = iron.PlaneQuant("fine", block=(1, 32), planes=planes)
    rng = np.random.default_rng(1)
    numbers = {role: rng.standard_normal((64, n)).astype(np.float16) for role, n in (("scales", 8), ("minima", 16))}
    w = fine.assembled(SHAPE, values=rng.integers(0, 16, SHAPE, np.uint8), **numbers)
    x = rng.standard_normal((3, 256)).astype(F32)
    for backend in ("reference", "host"):
        y = Product(w).compile(backend=backend, x=(x.shape, F32))(x)
        assert np.allclose(y, x @ w.dequantize().T, rtol=1e-4, atol=1e-2)
    with pytest.raises(ParamError, match="minima for 16 numbers of a row and scales for 32"):
        GEMV(M=64, K=256, W=fine, activations="int8_block")


def test_a_product_of_part_of_a_weight():
    """Whole rows of blocks; a cut anywhere else is refused when it is traced, with what is legal."""
    w, x = drawn(Q4NX), np.random.default_rng(2).standard_normal(256).astype(F32)
    y = Product(w, slice(32, 64)).compile(backend="reference", x=(x.shape, F32))(x)
    assert np.allclose(y, w.dequantize()[32:] @ x, rtol=1e-5, atol=1e-4)
    for cut in (slice(8, 40), 3, (slice(None), slice(0, 128))):
        with pytest.raises(TraceError, match="its rows are cut only at whole blocks of 32, its columns not at all"):
            Product(w, cut).trace(x=((256,), F32))
    with pytest.raises(TraceError, match="its matrices come whole"):
        Product(drawn(GPTQ), slice(0, 8)).trace(x=((256,), F32))


def test_one_of_a_stack_of_matrices():
    """Leading axes are cut anywhere."""
    w, x = drawn(GPTQ, (3, *SHAPE)), np.random.default_rng(2).standard_normal(256).astype(F32)
    y = Product(w, 1).compile(backend="reference", x=(x.shape, F32))(x)
    assert np.allclose(y, w.dequantize()[1] @ x, rtol=1e-5, atol=1e-4)


def test_rows_that_do_not_stand_by_themselves_are_not_moved():
    """No gather, no copy, no other matrix shape; bfp16's rows do stand by themselves."""

    class Rows(iron.Graph):
        def __init__(self, w, way):
            self.w, self.way = iron.weight(w), way

        def body(self, ids):
            return Dequant(self.way(self.w, ids), T=F32)

    gather, shape = (lambda w, ids: Copy(w[ids]).reshape(2, 256)), ((2,), np.int32)
    w = drawn(BFP16EBS8)
    got = Rows(w, gather).compile(backend="reference", ids=shape)(np.array([5, 9], np.int32))
    assert np.array_equal(got, w.dequantize()[[5, 9]])
    with pytest.raises(TraceError, match="whose rows do not stand by themselves"):
        Rows(drawn(Q4NX), gather).trace(ids=shape)
    with pytest.raises(ParamError, match="rows of gptq4 do not stand by themselves"):
        Rows(drawn(GPTQ), lambda w, ids: Copy(w)).trace(ids=shape)
    with pytest.raises(TraceError, match=r"a reshape keeps its matrices, \[64, 256\]"):
        Rows(drawn(Q4NX), lambda w, ids: w.reshape(128, 128)).trace(ids=shape)
    with pytest.raises(TraceError, match="a block tensor has no transpose"):
        Rows(drawn(Q4NX), lambda w, ids: w.T).trace(ids=shape)


def test_a_shape_that_is_no_whole_blocks_is_refused():
    """By rows as by columns, when the operator is made."""
    with pytest.raises(FormatError, match="a column of 40"):
        GEMV(M=40, K=256, W=Q4NX)
    with pytest.raises(FormatError, match="a row of 100"):
        GEMM(M=2, K=100, N=32, W=GPTQ, b_col_maj=True)
    with pytest.raises(ParamError, match="gptq4 weights are rows of K"):
        GEMM(M=2, K=128, N=32, W=GPTQ)
