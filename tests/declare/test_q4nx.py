"""FastFlowLM's chunks: their bytes, their numbers, and rows that end inside one."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import iron_core as iron
from iron_core import PackedArray, PlaneQuant
from iron_core.declare.formats import as_format
from iron_core.errors import FormatError
from iron_ops_aie import GEMV

ROWS, COLUMNS, GROUPS = np.arange(32)[:, None], np.arange(256)[None, :], np.arange(8)[None, :]
#: Scales and minima, (32, 8), that bfloat16 holds exactly, and nibbles.
SCALES = ((1 + GROUPS) / 128 + 0 * ROWS).astype(np.float32)
MINIMA = (-(ROWS + 1) / 4 + 0 * GROUPS).astype(np.float32)
NIBBLES = ((3 * ROWS + 5 * COLUMNS + 1) % 16).astype(np.int32)


def digest(tensor):
    return hashlib.sha256(tensor.data.tobytes()).hexdigest()


def hexes(tensor, *cuts):
    raw = tensor.data.tobytes()
    return [raw[a:b].hex() for a, b in cuts]


def test_q4nx_is_scales_minima_and_nibbles():
    """A chunk of 5120 bytes, its places and its numbers."""
    chunk = iron.Q4NX.assembled((32, 256), scales=SCALES, minima=MINIMA, values=NIBBLES)
    assert chunk.nbytes == 5120 and digest(chunk) == "f67a291b34cad4cf67c6fd9c04939bfcf0830606575ac8b1b3795098d915437a"
    at = ((0, 8), (64, 68), (512, 520), (1024, 1040), (5112, 5120))
    assert hexes(chunk, *at) == [
        "003c003c003c003c", "803c803c", "80be00bf40bf80bf", "41a70d63c92f85eb96fc52b81e74da30", "fc52b81e74da3096",
    ]  # fmt: skip
    w = chunk.dequantize()
    assert (w[0, 0], w[1, 0], w[17, 40], w[31, 255], w.sum()) == (-0.2421875, -0.46875, -4.3125, -7.4375, -31632)


@given(rows=st.sampled_from((32, 64)), groups=st.integers(1, 20), lead=st.sampled_from(((), (1,), (2,), (2, 2))), seed=st.integers(0, 99))
def test_rows_end_inside_a_chunk(rows, groups, lead, seed):
    """At any 32 columns; the bytes behind are zeros, and no number of a tensor shows them."""
    shape = (*lead, rows, 32 * groups)
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    tensor = iron.Q4NX.quantize(values)
    chunks = -(-groups // 8)
    assert tensor.data.shape == (*lead, rows // 32, chunks * 5120)
    full = np.zeros((*lead, rows, 256 * chunks), np.float32)
    full[..., : 32 * groups] = values
    whole = iron.Q4NX.quantize(full)
    assert np.array_equal(tensor.data, whole.data) and np.array_equal(tensor.dequantize(), whole.dequantize()[..., : 32 * groups])
    ints, scales, minima = iron.Q4NX.fields(tensor.data, shape)
    assert ints.shape == shape and scales.shape == minima.shape == (*shape[:-1], groups)
    parts = {plane.role: iron.Q4NX.numbers(plane, tensor.data, shape) for plane in iron.Q4NX.planes if plane.role != "values"}
    again = iron.Q4NX.assembled(shape, values=iron.Q4NX.integers(tensor.data, shape), **parts)
    assert np.array_equal(again.data, tensor.data)
    spread = np.abs(values.reshape(*shape[:-1], groups, 32).max(-1) - values.reshape(*shape[:-1], groups, 32).min(-1))
    assert (np.abs(tensor.dequantize() - values) <= np.repeat(spread, 32, -1) / 15 + 0.05).all()


def test_what_fills_a_chunk_up_is_not_read():
    """Whatever bytes stand there."""
    tensor = iron.Q4NX.quantize(np.random.default_rng(0).standard_normal((32, 64)).astype(np.float32))
    full = PackedArray(tensor.data, (32, 256), iron.Q4NX)
    odd = iron.Q4NX.assembled(
        (32, 256),
        **{p.role: np.where(np.arange(8) < 2, iron.Q4NX.numbers(p, full.data, full.shape), np.nan) for p in iron.Q4NX.planes[:2]},
        values=iron.Q4NX.integers(full.data, full.shape),
    )
    assert np.array_equal(PackedArray(odd.data, (32, 64), iron.Q4NX).dequantize(), tensor.dequantize())


def test_views_take_rows_of_chunks():
    """32 rows at a time, whatever their length."""
    tensor = iron.Q4NX.quantize(np.random.default_rng(0).standard_normal((96, 320)).astype(np.float32))
    assert np.array_equal(tensor[32:].dequantize(), tensor.dequantize()[32:])
    assert iron.Q4NX.unit((96, 320)) == (32, 320) and iron.Q4NX.offset(32 * 320, (96, 320)) == 2 * 5120
    with pytest.raises(FormatError, match="rows are cut at whole blocks of 32"):
        tensor[16:]
    with pytest.raises(FormatError, match=r"a row of 100 is not whole blocks of 32\. Nearest: 96, 128"):
        iron.Q4NX.stored((32, 100))
    with pytest.raises(FormatError, match=r"a column of 40 is not whole blocks of 32\. Nearest: 32, 64"):
        iron.Q4NX.stored((40, 256))


@pytest.mark.parametrize("backend", ("reference", "host"))
@pytest.mark.parametrize("columns", (64, 320))
def test_products_take_such_rows(backend, columns):
    """The numbers it stands for, times x."""

    class Product(iron.Graph):
        def __init__(self, w):
            self.w = iron.weight(w)

        def body(self, x):
            return GEMV(self.w, x), GEMV(self.w[32:], x)

    rng = np.random.default_rng(0)
    w, x = iron.Q4NX.quantize(rng.standard_normal((64, columns)).astype(np.float32)), rng.standard_normal(columns).astype(np.float32)
    all_rows, last = Product(w).compile(backend=backend, x=(x.shape, np.float32))(x)
    assert np.allclose(all_rows, w.dequantize() @ x, rtol=1e-5, atol=1e-4) and np.array_equal(last, all_rows[32:])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (dict(padded=96), "padded=96; legal: 0, or what divides its block's 256 columns"),
        (dict(padded=16), "padded=16; legal: a multiple of the numbers of a row that share one"),
        (dict(padded=32, block=(1, 256)), "padded=32 beside blocks of one row"),
    ],
)
def test_padding_is_of_whole_groups_in_blocks_of_rows(changes, says):
    """A format that says otherwise is refused."""
    given = {"block": (32, 256), "planes": (iron.Plane("scales", "bfloat16", (1, 32)), iron.Plane("values", "uint4")), **changes}
    with pytest.raises(FormatError, match=says):
        PlaneQuant("odd", **given)


def test_they_are_found_by_name():
    """As any format."""
    assert as_format("q4nx") is iron.Q4NX
