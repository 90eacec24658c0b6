"""FastFlowLM's chunks: their bytes, their numbers, and rows that end inside one."""

from __future__ import annotations

import hashlib
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import iron_core as iron
from iron_core import PackedArray, PlaneQuant
from iron_core.declare.formats import Q4NX_K, Q4NX_MXFP4, Q4NX_Q8, Q4NX_SIGNED, Q4NX_ZERO, as_format
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


def test_q4nx_q8_is_scales_and_bytes():
    """A chunk of 8704 bytes."""
    chunk = Q4NX_Q8.assembled((32, 256), scales=SCALES, values=(7 * ROWS + 11 * COLUMNS + 3) % 251 - 125)
    assert chunk.nbytes == 8704 and digest(chunk) == "602c3817d510bc97f99a1e5895edf55293a6fa2a0af2280c053301809f995c2d"
    assert hexes(chunk, (512, 520)) == ["868d949ba2a9b0b7"]
    w = chunk.dequantize()
    assert (w[0, 0], w[17, 40], w.sum()) == (-0.953125, -1.015625, -30.609375)


def k_chunk():
    """A chunk of q4nx_k by the closed form of its places."""
    raw = np.zeros(4736, np.uint8)
    scales, minima = (5 * ROWS + 3 * GROUPS + 2) % 64, (ROWS + 7 * GROUPS + 1) % 64
    raw[:256], raw[256:512] = scales.T.reshape(-1), minima.T.reshape(-1)
    np.bitwise_or.at(raw, 512 + COLUMNS * 16 + ROWS // 2, (NIBBLES << ROWS % 2 * 4).astype(np.uint8))
    rows = np.arange(32, dtype=np.float32)
    raw[4608:4672] = ((rows + 1) / 1024).astype(iron.bfloat16).view(np.uint8)
    raw[4672:] = (-(rows + 1) / 512).astype(iron.bfloat16).view(np.uint8)
    return PackedArray(raw, (32, 256), Q4NX_K)


def test_q4nx_k_has_scales_of_scales():
    """A chunk of 4736 bytes."""
    chunk = k_chunk()
    assert digest(chunk) == "73935ad918bb496d70cf7d1064429d510719c803ce34e2f458df66a69bd4eace"
    w = chunk.dequantize()
    assert (w[0, 0], w[17, 40], w.sum()) == (0, 4.60546875, 21510)


def mxfp4_chunk():
    """A chunk of q4nx_mxfp4 by the closed form of its places; unverified: no file of FastFlowLM's was compared."""
    raw = np.zeros(2560, np.uint8)
    columns = COLUMNS[:, :128]
    raw[:128] = (120 + (ROWS + 3 * GROUPS[:, :4]) % 16).T.reshape(-1)
    nibbles = (3 * ROWS + columns**2 + columns // 7) % 16
    np.bitwise_or.at(raw, 512 + ROWS // 16 * 1024 + columns * 8 + ROWS % 16 // 2, (nibbles << ROWS % 2 * 4).astype(np.uint8))
    return PackedArray(raw, (32, 128), Q4NX_MXFP4)


def test_q4nx_mxfp4_is_exponents_and_small_floats():
    """A chunk of 2560 bytes for 128 columns; what lies between exponents and numbers (biases) changes nothing."""
    chunk = mxfp4_chunk()
    assert digest(chunk) == "ecfc05cf68ceed000f65b6787a89300a675c611280216a06f65e47c8d10c9113"
    w = chunk.dequantize()
    assert (w[1, 0], w[17, 41], w[30, 126], w.sum()) == (0.0234375, -0.0625, 0.0, -1067.8125)
    raw = chunk.data.reshape(-1).copy()
    raw[128:512] = 255
    assert np.array_equal(PackedArray(raw, (32, 128), Q4NX_MXFP4).dequantize(), w)
    raw[0] = 255
    assert np.isnan(PackedArray(raw, (32, 128), Q4NX_MXFP4).dequantize()[0, :32]).all()


def test_q4nx_signed_has_signed_nibbles():
    """The same places; a nibble is -8 to 7, and its minimum is 0. Rounding is Q4_0's."""
    chunk = Q4NX_SIGNED.assembled((32, 256), scales=SCALES, minima=0 * MINIMA, values=NIBBLES - 8)
    assert np.array_equal(chunk.dequantize(), np.repeat(SCALES, 32, 1) * (NIBBLES - 8))
    same = iron.Q4NX.assembled((32, 256), scales=SCALES, minima=0 * MINIMA, values=NIBBLES ^ 8)
    assert np.array_equal(chunk.data, same.data)
    values = np.random.default_rng(0).standard_normal((32, 96)).astype(np.float32)
    packed, ours = iron.Q4_0.quantize(values), Q4NX_SIGNED.quantize(values)
    integers, scales, _ = iron.Q4_0.fields(packed.data, packed.shape)
    found, narrow, minima = Q4NX_SIGNED.fields(ours.data, ours.shape)
    assert np.array_equal(found, integers) and not minima.any() and found.min() == -8
    assert np.allclose(narrow, scales, rtol=2**-8, atol=0)


def test_q4nx_zero_takes_zero_points_away():
    """The same places: what q4nx adds after, it subtracts before; its fields say so as minima."""
    chunk = Q4NX_ZERO.assembled((32, 256), scales=SCALES, zeros=MINIMA, values=NIBBLES)
    assert np.array_equal(chunk.data, iron.Q4NX.assembled((32, 256), scales=SCALES, minima=MINIMA, values=NIBBLES).data)
    assert np.array_equal(chunk.dequantize(), np.repeat(SCALES, 32, 1) * (NIBBLES - np.repeat(MINIMA, 32, 1)))
    integers, _, minima = Q4NX_ZERO.fields(chunk.data, chunk.shape)
    assert np.array_equal(integers, NIBBLES) and np.array_equal(minima, -SCALES * MINIMA)


FORMATS = (iron.Q4NX, Q4NX_SIGNED, Q4NX_ZERO, Q4NX_Q8, Q4NX_K, Q4NX_MXFP4)


@pytest.mark.parametrize("format", FORMATS, ids=str)
@given(rows=st.sampled_from((32, 64)), groups=st.integers(1, 11), batch=st.integers(1, 2), seed=st.integers(0, 99))
def test_any_chunks_are_their_fields(format, rows, groups, batch, seed):
    """Integers times scales plus minima, at any 32 columns; a chunk's numbers are those of the chunk alone."""
    shape = (batch, rows, 32 * groups)
    raw = np.random.default_rng(seed).integers(0, 64, format.nbytes(shape), np.uint8)  # below 64: no scale is above 1
    tensor = PackedArray(raw, shape, format)
    integers, scales, minima = format.fields(tensor.data, shape)
    assert integers.shape == shape and scales.shape == (*shape[:-1], groups) and format.group == 32
    numbers = integers.astype(np.float64) * np.repeat(scales.astype(np.float64), 32, -1)
    if minima is not None:
        numbers += np.repeat(minima.astype(np.float64), 32, -1)
    w = tensor.dequantize()
    assert np.allclose(w, numbers, rtol=1e-6, atol=1e-6 * max(1.0, np.abs(scales).max()))
    wide = format.block[1]
    first = tensor.data.reshape(-1, format.block_bytes)[0]
    alone = PackedArray(first, (32, min(wide, 32 * groups)), format).dequantize()
    assert np.array_equal(alone, w[0, :32, :wide])


@pytest.mark.parametrize("format", (Q4NX_SIGNED, Q4NX_ZERO, Q4NX_Q8), ids=str)
def test_they_round_within_a_step(format):
    """Those that numbers are rounded to."""
    values = np.random.default_rng(0).standard_normal((2, 32, 320)).astype(np.float32)
    tensor = format.quantize(values)
    step = format.fields(tensor.data, tensor.shape)[1].max()
    assert np.abs(tensor.dequantize() - values).max() <= 1.05 * step and tensor.data.shape == (2, 1, 2 * format.block_bytes)


@pytest.mark.parametrize("format", (Q4NX_K, Q4NX_MXFP4), ids=str)
def test_two_are_only_read(format):
    """Nothing rounds to them."""
    with pytest.raises(FormatError, match=f"{format.name} is only read"):
        format.quantize(np.ones((32, 256), np.float32))


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
    with pytest.raises(FormatError, match=r"^q4nx_signed: a row of 100 is not whole blocks of 32"):
        Q4NX_SIGNED.quantize(np.ones((32, 100), np.float32))
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
    """As any format; and pickle."""
    assert all(as_format(format.name) is format and pickle.loads(pickle.dumps(format)) == format for format in FORMATS)
    assert len(set(FORMATS)) == len(FORMATS) and as_format("q4nx") is iron.Q4NX
