"""Formats described by planes: layouts in use elsewhere fit, and are read bit for bit as plain loops over their documents do."""

from __future__ import annotations

import pickle
import struct

import ml_dtypes
import numpy as np
import pytest

import iron_core as iron
from iron_core import PackedArray, Plane, PlaneQuant
from iron_core.errors import FormatError
from tests.layouts import AWQ, BFP16EBS8, EVERY, GPTQ, INT8_CHANNEL, INT8_TENSOR, Q4NX

BF16 = np.dtype(ml_dtypes.bfloat16)


def random_bytes(rng, format, shape):
    """A tensor of any bits at all but in its floats, which are small numbers."""
    raw = rng.integers(0, 256, format.nbytes(shape), np.uint8)
    tensor = PackedArray(raw, shape, format)
    numbers = {p.role: format.numbers(p, tensor.data, shape) for p in format.planes if p.role != "values"}
    for plane in format.planes:
        if not plane.integer:
            numbers[plane.role] = rng.standard_normal(numbers[plane.role].shape).astype(plane.dtype)
    return format.assembled(shape, values=format.integers(tensor.data, shape), **numbers)


def q4nx(raw, N, K):
    """Chunks of 32 x 256 in raster order: 512 bytes of scales, of minima, 4096 of nibbles, each place by its closed form."""
    w = np.zeros((N, K), np.float32)
    for n in range(N):
        for k in range(K):
            chunk = raw[(n // 32 * (K // 256) + k // 256) * 5120 :][:5120]
            r, c = n % 32, k % 256
            g = c // 32 * 32 + r
            d = np.float32(chunk[2 * g : 2 * g + 2].view(BF16)[0])
            m = np.float32(chunk[512 + 2 * g : 514 + 2 * g].view(BF16)[0])
            byte = int(chunk[1024 + r // 16 * 2048 + c * 8 + r % 16 // 2])
            w[n, k] = np.float32(d * np.float32(byte >> 4 if r % 2 else byte & 15)) + m
    return w


def words(raw, *shape):
    return np.frombuffer(raw[: 4 * int(np.prod(shape))].tobytes(), "<u4").reshape(shape)


def gptq(raw, N, K):
    """w[n, k] = scale * (q - (zero + 1)); a word of qweight has eight k of one n, one of qzeros eight n of one group."""
    qweight = words(raw, K // 8, N)
    qzeros = words(raw[4 * K // 8 * N :], K // 128, N // 8)
    scales = raw[4 * (K // 8 * N + K // 128 * N // 8) :].view(np.float16).reshape(K // 128, N)
    w = np.zeros((N, K), np.float32)
    for n in range(N):
        for k in range(K):
            q = qweight[k // 8, n] >> 4 * (k % 8) & 15
            zero = (qzeros[k // 128, n // 8] >> 4 * (n % 8) & 15) + 1
            w[n, k] = np.float32(scales[k // 128, n]) * np.float32(int(q) - int(zero))
    return w


def awq(raw, N, K):
    """w[n, k] = scale * (q - zero); nibble i of a word is output (0, 2, 4, 6, 1, 3, 5, 7)[i] of its eight."""
    place = [(0, 2, 4, 6, 1, 3, 5, 7).index(i) for i in range(8)]
    qweight = words(raw, K, N // 8)
    qzeros = words(raw[4 * K * N // 8 :], K // 128, N // 8)
    scales = raw[4 * (K * N // 8 + K // 128 * N // 8) :].view(np.float16).reshape(K // 128, N)
    w = np.zeros((N, K), np.float32)
    for n in range(N):
        for k in range(K):
            q = qweight[k, n // 8] >> 4 * place[n % 8] & 15
            zero = qzeros[k // 128, n // 8] >> 4 * place[n % 8] & 15
            w[n, k] = np.float32(scales[k // 128, n]) * np.float32(int(q) - int(zero))
    return w


def int8_tensor(raw, N, K):
    (scale,) = struct.unpack("<f", raw[N * K :].tobytes())
    return raw[: N * K].view(np.int8).reshape(N, K).astype(np.float32) * np.float32(scale)


def int8_channel(raw, N, K):
    return raw[: N * K].view(np.int8).reshape(N, K).astype(np.float32) * raw[N * K :].view(np.float32)[:, None]


def bfp16(raw, N, K):
    """A byte of exponent before each eight mantissas: mantissa * 2^(exponent - 127 - 6)."""
    blocks = raw.reshape(-1, 9)
    mantissas, scales = blocks[:, 1:].view(np.int8), [2.0 ** (int(e) - 133) for e in blocks[:, 0]]
    numbers = [[float(m) * scale for m in row] for row, scale in zip(mantissas, scales, strict=True)]
    return np.array(numbers).astype(np.float32).reshape(N, K)


READERS = {Q4NX: (q4nx, (64, 512)), GPTQ: (gptq, (24, 256)), AWQ: (awq, (24, 256)), INT8_TENSOR: (int8_tensor, (5, 7)),
           INT8_CHANNEL: (int8_channel, (5, 7)), BFP16EBS8: (bfp16, (5, 24))}  # fmt: skip


@pytest.mark.parametrize("format", EVERY, ids=str)
def test_numbers_are_those_of_the_layouts_documents(rng, format):
    """Any bytes: every number equals, bit for bit, what a loop over the documented places gives."""
    read, shape = READERS[format]
    tensor = random_bytes(rng, format, shape)
    want = read(tensor.data.reshape(-1), *shape)
    assert np.array_equal(tensor.dequantize().view(np.uint32), want.view(np.uint32))


@pytest.mark.parametrize("format", EVERY, ids=str)
def test_taken_apart_and_put_together_the_bytes_are_the_same(rng, format):
    """Every bit of a tensor is in one plane."""
    _, shape = READERS[format]
    raw = rng.integers(0, 256, format.nbytes(shape), np.uint8)
    tensor = PackedArray(raw, shape, format)
    numbers = {p.role: format.numbers(p, tensor.data, shape) for p in format.planes if p.role != "values"}
    again = format.assembled(shape, values=format.integers(tensor.data, shape), **numbers)
    assert np.array_equal(again.data, tensor.data)


@pytest.mark.parametrize("format", EVERY, ids=str)
def test_rounded_numbers_are_near_and_stay(rng, format):
    """Within a step of a group's range; numbers that are in the format already come back bit for bit."""
    _, shape = READERS[format]
    values = rng.standard_normal(shape).astype(np.float32)
    once = format.quantize(values)
    ints, scales, _ = format.fields(once.data, shape)
    step = np.repeat(scales, shape[-1] // scales.shape[-1], -1)
    assert np.abs(once.dequantize() - values).max() <= 1.05 * step.max()
    assert ints.dtype == np.int32 and scales.dtype == np.float32 and len(np.unique(ints)) > 8
    if format is BFP16EBS8:  # its scales are powers of two, which no rounding moves
        assert np.array_equal(format.quantize(once.dequantize()).data, once.data)


def test_bfp16_rounds_to_even_by_the_largest_exponent():
    """The byte of the largest exponent, mantissas of 24 bits divided by 2^(17 + distance), half to even, saturated."""
    x = np.array([[1.0, -1.0, 1.9999, 0.5 / 64, 1.5 / 64, 2.5 / 64, 0, -2**-20]], np.float32)
    block = BFP16EBS8.quantize(x).data[0]
    assert block[0] == 127 and block[1:].view(np.int8).tolist() == [64, -64, 127, 0, 2, 2, 0, 0]
    assert BFP16EBS8.quantize(np.zeros((1, 8), np.float32)).data.tolist() == [[0] * 9]


@pytest.mark.parametrize("format", (iron.Q4_0, iron.Q4_1, iron.Q5_0, iron.Q5_1, iron.Q8_0), ids=str)
def test_a_block_format_is_its_planes(rng, format):
    """What `BlockQuant` abbreviates, written out, reads and rounds the same."""
    planes = PlaneQuant(format.name, (1, 32), format.planes)
    values = rng.standard_normal((3, 96)).astype(np.float32)
    assert np.array_equal(planes.quantize(values).data, format.quantize(values).data)
    assert np.array_equal(planes.quantize(values).dequantize(), format.quantize(values).dequantize())
    assert (planes.block_bytes, planes.by_rows, planes.group) == (format.block_bytes, True, 32)


def test_what_stands_together_is_cut_together():
    """Rows of blocks at whole blocks, a matrix whole where something stands apart; batches of either anywhere."""
    chunks = Q4NX.quantize(np.random.default_rng(0).standard_normal((2, 96, 256)).astype(np.float32))
    whole = chunks.dequantize()
    assert np.array_equal(chunks[1].dequantize(), whole[1]) and np.array_equal(chunks[:, 32:96].dequantize(), whole[:, 32:96])
    assert np.array_equal(chunks[1, 64:].dequantize(), whole[1, 64:])
    assert chunks.reshape(1, 2, 96, 256)[0, 1].shape == (96, 256)
    for key in ((0, 5), (0, slice(8, 40)), (0, slice(0, 32), slice(0, 128))):
        with pytest.raises(FormatError, match="rows are cut at whole blocks of 32"):
            chunks[key]
    apart = GPTQ.quantize(whole)
    assert np.array_equal(apart[1].dequantize(), apart.dequantize()[1])
    for key in ((0, slice(0, 8)), (slice(None), 3)):
        with pytest.raises(FormatError, match="a matrix comes whole"):
            apart[key]
    with pytest.raises(FormatError, match=r"keeps its matrices \[96, 256\]"):
        apart.reshape(192, 256)


def test_what_code_may_ask():
    """Rows by themselves, the unit of a view, the group of a scale, offsets of elements and of floats in a block."""
    assert [f.by_rows for f in EVERY] == [False, False, False, False, False, True]
    assert (Q4NX.unit((64, 512)), GPTQ.unit((16, 128)), BFP16EBS8.unit((5, 24))) == ((32, 512), (16, 128), (1, 8))
    assert [f.group for f in EVERY] == [32, 128, 128, 0, 0, 8]
    assert Q4NX.offset(32 * 512, (64, 512)) == 2 * 5120 and GPTQ.offset(24 * 256, (2, 24, 256)) == GPTQ.nbytes((24, 256))
    with pytest.raises(FormatError, match="element 512 is not the first of a block of 16384"):
        Q4NX.offset(512, (64, 512))
    assert len(Q4NX.scale_offsets) == 512 and Q4NX.scale_offsets[256] == (512, BF16) and GPTQ.scale_offsets == ()
    assert all(f.packed and f.dtype == np.uint8 and f.spec is f for f in EVERY) and {f.runs_as for f in EVERY} == {"float32", "q4nx"}
    dense = iron.Dense(np.float16)
    assert not dense.packed and dense.spec == dense.dtype == np.float16 and dense.runs_as == "float16" and dense.kept_axes == 0


def test_formats_are_equal_where_they_store_alike_and_pickle():
    """So they are fields of operators, parts of keys and of what a cache keeps."""
    for format in (*EVERY, iron.Q4_1, iron.Dense(np.float32)):
        copy = pickle.loads(pickle.dumps(format))
        assert copy == format and hash(copy) == hash(format)
    assert PlaneQuant("other", Q4NX.block, Q4NX.planes) != Q4NX


SCALES = Plane("scales", "float16", (1, 32))


@pytest.mark.parametrize(
    ("block", "planes", "says"),
    [
        ((1, 32), (Plane("values", "uint4"),), "one of scales"),
        ((1, 32), (Plane("scales", "float16", (1, 32)),), "needs planes of values"),
        ((1, 32), (Plane("scales", "float16", (1, 24)), Plane("values", "uint4")), "scales that do not divide its block of 1 x 32"),
        ((1, 32), (Plane("scales", "float16", (0, 0)), Plane("values", "uint4")), "whole row or matrix inside a block; they stand apart"),
        ((1, 32), (Plane("scales", "float16", (1, 32)), Plane("values", "float16")), "values are integers"),
        ((1, 31), (Plane("scales", "float16", (1, 31)), Plane("values", "uint4")), "innermost 31 of 4 bits are no whole bytes"),
        ((1, 32), (Plane("scales", "float16", (1, 32)), Plane("values", "uint8"), Plane("values", "uint1", shift=8)), "9 bits"),
        ((1, 32), (SCALES, Plane("values", "uint4"), Plane("values", "uint4")), "values whose bits begin at shift=0; legal: 4"),
        ((1, 32), (SCALES, Plane("values", "uint4", shift=2)), "values whose bits begin at shift=2; legal: 0"),
        ((1, 32), (SCALES, Plane("values", "int4"), Plane("values", "int1", shift=4)), "in 2 planes; legal: unsigned integers"),
        ((1, 32), (SCALES, Plane("values", "uint4", zero=8), Plane("values", "uint1", shift=4)), "values in 2 planes; legal: unsigned"),
    ],
)  # fmt: skip
def test_planes_that_do_not_fit_are_refused(block, planes, says):
    """When the format is made, in words that say which plane."""
    with pytest.raises(FormatError, match=says):
        PlaneQuant("odd", block, planes)


def test_an_order_names_each_part_once():
    with pytest.raises(FormatError, match=r"order=\(0, 0\) of 2 parts"):
        Plane("values", "uint4", order=(0, 0))


def test_a_shape_is_whole_blocks():
    """Rows and columns both, and the message has the nearest."""
    with pytest.raises(FormatError, match=r"a column of 40 is not whole blocks of 32\. Nearest: 32, 64"):
        Q4NX.stored((40, 256))
    with pytest.raises(FormatError, match=r"a row of 100 is not whole blocks of 128\. Nearest: 128"):
        GPTQ.stored((8, 100))
    with pytest.raises(FormatError, match="q4nx of shape"):
        PackedArray(np.zeros(3, np.uint8), (32, 256), Q4NX)


MIN_16 = Plane("minima", "float16", group=(1, 16))


@pytest.mark.parametrize(
    ("planes", "says"),
    [
        ((Plane("scales", "float16", group=(1, 32)), MIN_16, Plane("values", "uint4")), r"its minima are for \(1, 16\) each and"),
        ((Plane("scales", "uint8", group=(1, 32)), Plane("values", "int8")), "its scales are integers"),
        ((Plane("scales", "float16", group=(1, 16)), MIN_16, Plane("values", "int8")), "its integers are signed or moved by a number"),
        ((Plane("scales", "float16", group=(1, 16)), MIN_16, Plane("values", "uint4", zero=8)), "its integers are signed or moved"),
    ],
)
def test_what_has_no_rule_for_rounding_is_only_read(planes, says):
    """Nothing is rounded wrongly in silence: a layout without a rule refuses."""
    format = PlaneQuant("acme.read", block=(1, 32), planes=planes)
    with pytest.raises(FormatError, match=f"acme.read is only read: {says}"):
        format.quantize(np.ones((2, 32), np.float32))


@pytest.mark.parametrize("index", [np.s_[:, 32:], np.s_[:, ::-1], np.s_[..., 0], np.s_[0, 1]])
def test_an_index_does_not_reach_into_a_row(index):
    """Rows of blocks are cut between rows; an index of columns would take bytes of blocks."""
    tensor = iron.Q4_0.quantize(np.ones((4, 64), np.float32))
    with pytest.raises(FormatError, match="a row of 64 comes whole"):
        tensor[index]
    assert tensor[:, :].shape == tensor[..., :].shape == (4, 64) and tensor[:, None].shape == (4, 1, 64)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Plane("weights", "uint4"), r"plane 'weights'; legal: values, scales, zeros, minima"),
        (lambda: Plane("scales", "float16", group=32), "plane scales: group=32; legal: rows and columns that share a number"),
        (lambda: Plane("scales", "float16", group=(-1, 32)), r"group=\(-1, 32\); legal"),
        (lambda: Plane("scales", "uint8", shift=4), "plane scales: shift=4; legal: 0"),
        (lambda: Plane("values", "uint8", zero="8"), "plane values: zero='8', shift=0; legal: whole numbers"),
        (lambda: Plane("values", "uint8", order=3), "plane values: order=3 of 2 parts; legal: each of 0 to 1 once"),
        (lambda: iron.BlockQuant("odd", bits=4, group=32, scale=np.float16, zero="8"), "format odd has zero='8'; legal: a whole number"),
        (lambda: Plane("values", "int8", power=True), "plane values: power=True; legal: False"),
        (lambda: Plane("values", "uint4", columns=(0,)), r"columns=\(0,\); legal: a tuple of sizes"),
        (lambda: PlaneQuant("odd", block=32, planes=()), "format odd has block=32; legal: rows and columns"),
        (lambda: PlaneQuant("odd", block=(1, 32), planes=3), "format odd has planes=3; legal: Planes"),
        (lambda: iron.BlockQuant("odd", bits=3, group=32, scale=np.float16), "format odd has bits=3; legal: 4, 5, 8"),
        (lambda: iron.BlockQuant("odd", bits=4, group=33, scale=np.float16), "format odd has group=33; legal: a multiple of 8"),
        (lambda: iron.BlockQuant("odd", bits=4, group=32, scale=np.float16, order="up"), "order='up'; legal: halves, pairs"),
        (lambda: iron.BlockQuant("odd", bits=5, group=32, scale=np.float16, signed=True), "bits=5; signed integers have 4 or 8 bits"),
    ],
)
def test_a_slip_in_a_format_is_told_as_one(make, says):
    """A FormatError that names the keyword and what is legal."""
    with pytest.raises(FormatError, match=says):
        make()
