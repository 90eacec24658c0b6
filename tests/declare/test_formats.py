"""Formats: dense dtypes and blocks of integers that share a scale."""

from __future__ import annotations

import re

import numpy as np
import pytest

import iron_core as iron
from iron_core.declare.formats import DTYPES, SUPERBLOCKS, as_dtype, as_format, format_of
from iron_core.errors import DeclarationError, FormatError

BLOCKS = [iron.Q4_0, iron.Q4_1, iron.Q5_0, iron.Q5_1, iron.Q8_0]
#: A layout of our own: 4-bit integers about 8 in pairs, float32 scales.
PAIRS = iron.BlockQuant("pairs4", bits=4, group=16, scale=np.float32, zero=8, order="pairs")


@pytest.mark.parametrize(("format", "size"), [(iron.Q4_0, 18), (iron.Q4_1, 20), (iron.Q5_0, 22), (iron.Q5_1, 24), (iron.Q8_0, 34)])
def test_block_sizes_are_ggufs(format, size):
    """32 numbers in 18, 20, 22, 24 and 34 bytes."""
    assert format.block_bytes == size and format.group == 32
    assert format.nbytes((3, 64)) == 6 * size


def test_q4_blocks_hold_halves():
    """Byte i has element i in its low nibble and i + 16 in its high one; zero point 8."""
    block = np.zeros(18, np.uint8)
    block[:2] = np.array([0.5], np.float16).view(np.uint8)
    block[2:] = np.arange(16) | (15 - np.arange(16)) << 4
    want = 0.5 * (np.concatenate([np.arange(16), 15 - np.arange(16)]) - 8)
    assert iron.Q4_0.dequantize(block, (32,)).tolist() == want.tolist()


def test_q4_1_adds_its_minimum_and_q8_0_is_signed():
    """Scale then minimum; int8 as two's complement."""
    block = np.zeros(20, np.uint8)
    block[:4] = np.array([2.0, -3.0], np.float16).view(np.uint8)
    block[4:] = 0x51
    assert set(iron.Q4_1.dequantize(block, (32,))) == {2.0 * 1 - 3, 2.0 * 5 - 3}
    block = np.zeros(34, np.uint8)
    block[:2] = np.array([1.0], np.float16).view(np.uint8)
    block[2:] = np.arange(-16, 16).astype(np.int8).view(np.uint8)
    assert iron.Q8_0.dequantize(block, (32,)).tolist() == list(range(-16, 16))


@pytest.mark.parametrize("format", [*BLOCKS, PAIRS, *SUPERBLOCKS], ids=str)
def test_drawn_tensors_are_of_the_size_asked_for(format):
    """Of both signs and finite, whole blocks; the same ones of the same generator."""
    for spread in (1, 1 / 16, 4):
        one, other = (format.drawn(np.random.default_rng(3), (9, 512), spread) for _ in range(2))
        numbers = one.dequantize().astype(np.float64)
        assert one.format == format and one.shape == (9, 512) and np.array_equal(one.data, other.data)
        assert 0.8 * spread < np.sqrt((numbers**2).mean()) < 1.25 * spread and numbers.min() < 0 < numbers.max()


@pytest.mark.parametrize("format", SUPERBLOCKS, ids=str)
def test_drawn_blocks_hold_every_bit(format):
    """Each bit but the float scales' is set in some block and not in another: what a quantiser would leave out is there."""
    blocks = format.drawn(np.random.default_rng(3), (256, format.block[1])).data
    free = np.ones(format.block_bytes, bool)
    for at, dtype in format.scale_offsets or ((0, np.dtype(np.uint8)),):
        free[at : at + dtype.itemsize] = False
    assert (np.bitwise_or.reduce(blocks)[free] == 255).all() and not np.bitwise_and.reduce(blocks)[free].any()


@pytest.mark.parametrize("format", [*BLOCKS, PAIRS], ids=str)
def test_quantizing_stays_within_a_step(format):
    """A rounded row is within one step of its numbers; whole blocks keep their place."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal((5, 96)).astype(np.float32)
    packed = format.quantize(values)
    blocks = values.reshape(5, -1, format.group)
    span, levels = (np.ptp(blocks, -1).max(), 2**format.bits - 1) if format.minimum else (2 * np.abs(blocks).max(), 2**format.bits - 2)
    step = span / levels
    assert np.abs(packed.dequantize() - values).max() <= step * 1.01
    assert np.array_equal(packed[2:4].dequantize(), packed.dequantize()[2:4])
    assert np.array_equal(packed.reshape(5, 1, 96).dequantize()[:, 0], packed.dequantize())


@pytest.mark.parametrize("format", BLOCKS, ids=str)
def test_gguf_reads_the_same_numbers(format):
    """The gguf package dequantises our blocks alike, and quantises to the same bytes."""
    gguf = pytest.importorskip("gguf", reason="the gguf package is this test's oracle")
    kind = gguf.GGMLQuantizationType[format.name.upper()]
    values = np.random.default_rng(1).standard_normal((4, 128)).astype(np.float32)
    packed = format.quantize(values)
    theirs = gguf.quants.quantize(values, kind)
    assert np.array_equal(gguf.quants.dequantize(packed.data, kind), packed.dequantize())
    assert np.mean(theirs != packed.data) == 0


@pytest.mark.parametrize("format", BLOCKS, ids=str)
def test_a_row_is_whole_blocks(format):
    """The error says the nearest lengths that are."""
    with pytest.raises(FormatError, match="Nearest: 64, 96"):
        format.row_bytes(65)
    with pytest.raises(FormatError, match="bytes"):
        iron.PackedArray(np.zeros(3, np.uint8), (1, 32), format)
    for shape in ((-1, -32), (1.0, 32.0), (), 32, None):
        with pytest.raises(FormatError, match=rf"PackedArray\(shape={re.escape(repr(shape))}\); legal: a whole number"):
            iron.PackedArray(np.zeros(format.row_bytes(32), np.uint8), shape, format)
    with pytest.raises(FormatError, match=r"its data is of list; legal: a numpy array of uint8"):
        iron.PackedArray([0] * 34, (1, 32), format)
    with pytest.raises(FormatError, match=r"PackedArray\(format='q8'\); legal: a Format"):
        iron.PackedArray(np.zeros(34, np.uint8), (1, 32), "q8")
    with pytest.raises(FormatError, match="keeps the blocked axis"):
        format.quantize(np.ones((2, 64), np.float32)).reshape(4, 32)


def test_dtypes_by_name_type_or_dtype():
    """Every dtype Iron carries, and the list of them where one is not."""
    for name, dtype in DTYPES.items():
        assert as_dtype(name) == as_dtype(dtype) == as_dtype(dtype.type) == dtype
        assert as_format(dtype).name == str(as_format(name)) == name
        assert format_of(np.zeros(1, dtype)) == iron.Dense(dtype)
    with pytest.raises(FormatError, match="Legal: bfloat16, float32"):
        as_dtype(np.float64)
    with pytest.raises(FormatError, match="not a dtype"):
        as_dtype("bf17")


@pytest.mark.parametrize("part", ["block", "block_bytes", "dequantize"])
def test_a_format_that_leaves_a_part_out_is_told_which(part):
    """Its author's mistake, in a sentence with the class, the part and what is legal."""

    class Bare(iron.Format):
        pass

    with pytest.raises(DeclarationError, match=f"format Bare declares no {part}. Legal: "):
        found = getattr(Bare(), part)
        found(np.zeros(0, np.uint8), (0,))


@pytest.mark.parametrize("format", [iron.Q8_0, PAIRS, as_format("float32")], ids=str)
@pytest.mark.parametrize(("given", "says"), [
    ("junk", "of <U4; legal: real numbers"), (None, "of object; legal: real numbers"), ([None] * 32, "of object; legal: real numbers"),
    ([[1, 2], [3]], "is no array (.*); legal: numbers of one shape"), (np.ones(32, complex), "of complex128; legal: real numbers"),
    (np.ma.masked_array(np.ones(32)), "of an array that is masked; legal: .*filled"),
    (iron.PackedArray(np.zeros(34, np.uint8), (32,), iron.Q8_0), "of q8_0; legal: .*dequantize"),
])  # fmt: skip
def test_what_is_no_numbers_is_not_rounded(format, given, says):
    """The format and what was given are named."""
    with pytest.raises(FormatError, match=rf"{format.name}: quantize\(\) {says}"):
        format.quantize(given)


@pytest.mark.parametrize("shape", [(), (0, 32), (2, 0)])
def test_a_packed_format_takes_numbers_that_fill_blocks(shape):
    """One number alone is no row, and nothing is no block."""
    with pytest.raises(FormatError, match=r"q8_0: quantize\(\) of shape .*; legal: 1 or more along each of one axis or more"):
        iron.Q8_0.quantize(np.ones(shape, np.float32))


@pytest.mark.parametrize("format", [iron.Q8_0, as_format("float32"), as_format("q4_k")], ids=str)
@pytest.mark.parametrize(("data", "shape"), [
    ("junk", (256,)), (None, (256,)), (np.zeros(33, np.uint8), (256,)), (np.zeros(272, np.float16), (256,)),
    (np.zeros(8, np.uint8), "junk"), (np.zeros(8, np.uint8), None), (np.zeros(8, np.uint8), (2.0, 16)), (np.zeros(8, np.uint8), (33,)),
    (np.zeros(8, np.uint8), -1),
])  # fmt: skip
def test_what_stores_no_tensor_of_a_shape_is_not_widened(format, data, shape):
    """Data of another kind, of another size, or a shape that is none."""
    with pytest.raises(FormatError, match=r"legal: |whole blocks|bytes"):
        format.dequantize(data, shape)
