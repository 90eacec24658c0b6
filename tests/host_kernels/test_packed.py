"""Weights of any format with planes: the struct that is written from them reads what the format's own numpy reads."""

from __future__ import annotations

import numpy as np
import pytest

import iron_core as iron
from iron_core.declare.formats import BlockQuant, Plane, PlaneQuant
from iron_host.kernels import PACKED_DEQUANTIZE, PACKED_PRODUCT
from iron_host.view import view_of

from .conftest import BLOCKS, DTYPES, PACKED_PRODUCTS, VIEWS

SHAPE = (64, 512)


def widened(kernels, w, valid, threads=1):
    rows, cols = w.shape
    y = np.full((valid, cols), np.nan, np.float32)
    slots = PACKED_DEQUANTIZE(x=w.data, y=y, valid=valid, cols=cols, rows=rows)
    kernels(f"packed_dequantize<{VIEWS[w.format].name}, float>", slots, scratch=4 * cols, threads=threads)
    return y


@pytest.mark.parametrize("format", VIEWS, ids=str)
def test_a_row_is_read_as_its_format_says(kernels, rng, format):
    """Bit for bit; where a minimum is added, by one rounding instead of two."""
    packed = format.quantize(rng.standard_normal(SHAPE).astype(np.float32))
    want = packed.dequantize()
    for valid in (64, 37):
        got = widened(kernels, packed, valid, threads=3)
        if any(plane.role == "minima" for plane in format.planes):
            assert np.allclose(got, want[:valid], rtol=2**-22, atol=2**-22)
        else:
            assert np.array_equal(got.view(np.uint32), want[:valid].view(np.uint32))


@pytest.mark.parametrize(("format", "X"), PACKED_PRODUCTS, ids=str)
def test_products_are_of_the_numbers_it_stands_for(kernels, rng, format, X):
    """Any number of rows and threads, a bound on the outputs, two matrices shared by three rows each."""
    packed = format.quantize(rng.standard_normal(SHAPE).astype(np.float32))
    w, (N, K) = packed.dequantize().astype(np.float64), SHAPE
    two = format.quantize(np.stack([packed.dequantize(), rng.standard_normal(SHAPE).astype(np.float32)]))
    x = rng.standard_normal((6, K)).astype(np.float32).astype(DTYPES[X])
    kernel = f"packed_product<{VIEWS[format].name}, {X}, {X}>"

    def product(weights, M, outputs, batches, repeat, threads):
        c = np.full((batches * M, N), np.nan, DTYPES[X])
        size = dict(M=M, N=outputs, K=K, w_rows=N, x_row=K, c_row=N, c_column=1)
        slots = PACKED_PRODUCT(x=x, w=weights, c=c, **size, batches=batches, x_batch=M * K, c_batch=M * N, repeat=repeat)
        kernels(kernel, slots, scratch=4 * K, threads=threads)
        return c[:, :outputs].astype(np.float64)

    near = dict(rtol=1e-5, atol=1e-3) if X == "float" else dict(rtol=2**-7, atol=1e-3)
    whole = product(packed.data, 6, N, 1, 1, 1)
    assert np.allclose(whole, x.astype(np.float64) @ w.T, **near)
    assert np.array_equal(product(packed.data, 6, 21, 1, 1, 3), whole[:, :21])
    wide = [two[b // 3].dequantize().astype(np.float64) @ x[b].astype(np.float64) for b in range(6)]
    assert np.allclose(product(two.data, 1, N, 6, 3, 2), np.stack(wide), **near)


def test_blocks_of_its_kind_are_blocks_h():
    """The formats that the fast kernels multiply, and the numbers they are told of each; a pack's of the same kind too."""
    structs = {view.name: view for view in map(view_of, BLOCKS)}
    told = {name: view.source.split("enum { ")[1].split(" }")[0] for name, view in structs.items() if view.blocks}
    assert told == {
        "Q4_0": "bytes = 18, head = 2, bits = 4, zero = 8, minimum = 0, plain = 1",
        "Q4_1": "bytes = 20, head = 4, bits = 4, zero = 0, minimum = 1, plain = 1",
        "Q8_0": "bytes = 34, head = 2, bits = 8, zero = 0, minimum = 0, plain = 1",
        "Q4NX": "bytes = 20, head = 4, bits = 4, zero = 0, minimum = 1, plain = 0",
        "Q4NX_SIGNED": "bytes = 20, head = 4, bits = 4, zero = 8, minimum = 1, plain = 0",
        "Q4NX_ZERO": "bytes = 20, head = 4, bits = 4, zero = 0, minimum = 2, plain = 0",
        "Q4NX_Q8": "bytes = 34, head = 2, bits = 8, zero = 0, minimum = 0, plain = 0",
        "PAIRS": "bytes = 20, head = 4, bits = 4, zero = 0, minimum = 1, plain = 0",
        "INT4_GROUP64": "bytes = 18, head = 2, bits = 4, zero = 8, minimum = 0, plain = 0",
        "UINT4_GROUP128": "bytes = 20, head = 4, bits = 4, zero = 0, minimum = 2, plain = 0",
        "UINT4_GROUP32_FLOAT32": "bytes = 24, head = 8, bits = 4, zero = 0, minimum = 2, plain = 0",
        "INT8_ZEROS_GROUP64_BFLOAT16": "bytes = 36, head = 4, bits = 8, zero = 0, minimum = 2, plain = 0",
    }
    mine = view_of(BlockQuant("acme.q4_7", bits=4, group=32, scale=np.float16, zero=7))
    assert mine.blocks and mine.name == "ACME_Q4_7" and "zero = 7" in mine.source
    shared = Plane("scales", "float16", (1, 32))
    elsewhere = (
        BlockQuant("pairs", bits=4, group=32, scale=np.float16, zero=8, order="pairs"),
        BlockQuant("brain", bits=4, group=32, scale=iron.bfloat16, zero=8),
        BlockQuant("wide", bits=4, group=64, scale=np.float16, zero=8),
        BlockQuant("long", bits=4, group=32, scale=np.float32, zero=8),
        PlaneQuant("behind", (1, 32), (Plane("values", "int8"), shared)),
    )
    assert all(view_of(format).blocks for format in elsewhere)
    others = (
        *VIEWS,
        PlaneQuant("apart", (1, 32), (Plane("values", "int8", apart=True), shared)),
        PlaneQuant("moved", (1, 32), (shared, Plane("values", "uint8", zero=128))),
        PlaneQuant("pointed", (1, 32), (shared, Plane("zeros", "int8", (1, 32)), Plane("values", "uint4"))),
        PlaneQuant("mixed", (1, 32), (shared, Plane("minima", "bfloat16", (1, 32)), Plane("values", "uint4"))),
    )
    assert not any(view_of(format).blocks for format in others)
