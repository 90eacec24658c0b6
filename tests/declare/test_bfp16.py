"""bfp16ebs8: eight numbers share an exponent; both roundings, to the bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import iron_core as iron
from iron_core.declare.formats import as_format
from iron_core.declare.formats.bfp16 import bfp16
from iron_core.errors import FormatError

BFP16 = iron.BFP16EBS8
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


def naive(numbers, floor: bool) -> list[int]:
    """Nine bytes of eight numbers in whole numbers alone: magnitudes of 24 bits, the first of them implied, shifted by how much
    smaller a number's exponent is than the largest."""
    bits = [int(n) for n in np.asarray(numbers, np.float32).view(np.uint32)]
    exponents = [b >> 23 & 255 for b in bits]
    largest = max(exponents)
    found = []
    for b, exponent in zip(bits, exponents, strict=True):
        signed = (b & 0x7FFFFF | (0x800000 if exponent else 0)) * (-1 if b >> 31 else 1)
        shift = 17 + max(largest, 1) - max(exponent, 1) - (largest == 0)  # below float32's normal numbers exponents end
        m, rest = signed >> shift, signed & (1 << shift) - 1
        if not floor and (2 * rest > 1 << shift or (2 * rest == 1 << shift and m % 2)):
            m += 1
        found.append(min(max(m, -128), 127) & 255)
    return [largest, *found]


def test_a_block_is_an_exponent_and_eight_bytes():
    """Nine bytes; the largest number's first bit is worth 64."""
    assert as_format("bfp16ebs8") is BFP16 and BFP16.block_bytes == 9 and BFP16.group == 8 and BFP16.nbytes((3, 64)) == 3 * 8 * 9
    block = BFP16.quantize(np.float32([1, -1, 0.5, 1.984375, -2**-6, 2**-7, 3 * 2**-7, 0]))
    assert block.data.tolist() == [127, 64, 192, 32, 127, 255, 0, 2, 0]
    assert block.dequantize().tolist() == [1, -1, 0.5, 1.984375, -(2**-6), 0, 2**-5, 0]
    assert BFP16.quantize(np.float32([3.25] * 8)).data.tolist() == [128, *[104] * 8]


#: Numbers; their bytes rounded to even, and down. One unit is 2**-6 in front of an exponent of 127.
ROUNDED = {
    "ties go to even": ([1, 2.5 / 64, 3.5 / 64, -2.5 / 64, -3.5 / 64, 0.5 / 64, -0.5 / 64, -1.5 / 64],
                        [127, 64, 2, 4, 254, 252, 0, 0, 254], [127, 64, 2, 3, 253, 252, 0, 255, 254]),
    "the ends are cut": ([127.75 / 64, -127.75 / 64, 127.25 / 64, -127.25 / 64, 1, 1, 1, 1],
                         [127, 127, 128, 127, 129, 64, 64, 64, 64], [127, 127, 128, 127, 128, 64, 64, 64, 64]),
    "small ones vanish": ([1e30, 1, -1, 1e-30, -1e-30, 0.0, -0.0, 1e20],
                          [226, 101, *[0] * 7], [226, 100, 0, 255, 0, 255, 0, 0, 0]),
    "zeros": ([0.0, -0.0] * 4, [0] * 9, [0] * 9),
    "the largest": ([3.4028235e38, -3.4028235e38] * 4, [254, *[127, 128] * 4], [254, *[127, 128] * 4]),
    "below the normal ones": ([2**-127, -(2**-127), 2**-128, 2**-133, 2**-134, 2**-149, -(2**-149), 0],
                              [0, 64, 192, 32, 1, 0, 0, 0, 0], [0, 64, 192, 32, 1, 0, 0, 255, 0]),
    "beside a normal one": ([2**-126, 2**-127, -(2**-149), 2**-149, 0, 0, 0, 0],
                            [1, 64, 32, 0, 0, 0, 0, 0, 0], [1, 64, 32, 255, 0, 0, 0, 0, 0]),
}  # fmt: skip


@pytest.mark.parametrize("name", ROUNDED)
def test_rounding(name):
    """Half to even, and down; the same by whole numbers alone."""
    numbers, even, down = ROUNDED[name]
    for rounding, want in (("conv_even", even), ("floor", down)):
        got = BFP16.quantize(np.array(numbers, np.float32), rounding).data.tolist()
        assert got == want == naive(numbers, rounding == "floor"), rounding


@given(numbers=st.lists(FLOATS, min_size=8, max_size=8) | st.lists(st.floats(-4, 4, width=32), min_size=8, max_size=8), floor=st.booleans())
@example(numbers=[-0.0] * 7 + [1.0], floor=True)
def test_every_number_rounds_as_its_bits_say(numbers, floor):
    """Any eight numbers that float32 holds."""
    got = BFP16.quantize(np.array(numbers, np.float32), "floor" if floor else "conv_even")
    assert got.data.tolist() == naive(numbers, floor)


@given(numbers=st.lists(st.floats(-(2.0**99), 2.0**99, width=32), min_size=8, max_size=8))
def test_what_is_held_is_close_and_stays(numbers):
    """Within half a unit of its block, the largest cut by at most one; what is held rounds to itself, either way, but where -128 is
    held, which is the next exponent's -64."""
    x = np.array(numbers, np.float32)
    held = BFP16.quantize(x)
    unit = 2.0 ** (int(held.data[0]) - 133)
    again = held.dequantize()
    off = np.abs(again.astype(np.float64) - x)
    assert (off <= np.where(held.data[1:] == 127, unit, unit / 2)).all()
    for rounding in ("conv_even", "floor"):
        assert 128 in held.data[1:] or np.array_equal(BFP16.quantize(again, rounding).dequantize(), again)


def test_rows_are_cut_into_eights_along_their_columns():
    """Each eight by itself, whatever the leading axes."""
    x = np.random.default_rng(0).standard_normal((2, 3, 40)).astype(np.float32)
    whole = BFP16.quantize(x, "floor")
    assert whole.data.shape == (2, 3, 45)
    eights = [naive(eight, True) for eight in x.reshape(-1, 8)]
    assert whole.data.reshape(-1, 9).tolist() == eights


def test_what_it_does_not_hold_is_refused():
    """NaN, infinity, what float32 has no number for, rows that are no whole eights, another rounding."""
    for bad in (np.nan, np.inf, -np.inf, 1e39):
        with pytest.raises(FormatError, match="quantize\\(\\) of NaN or infinity; legal: finite numbers of float32"):
            BFP16.quantize(np.array([bad, *[1.0] * 7]))
    with pytest.raises(FormatError, match="12"):
        BFP16.quantize(np.zeros((2, 12), np.float32))
    for rounding in ("nearest", None, 3):
        with pytest.raises(FormatError, match=r"legal: 'conv_even' or 'floor'"):
            BFP16.quantize(np.zeros(8, np.float32), rounding)


@given(numbers=st.lists(st.floats(-(2.0**99), 2.0**99, width=32, allow_subnormal=False), min_size=1, max_size=20))
def test_a_multiplier_has_the_formats_numbers(numbers):
    """Of a matrix along either axis, the last eight filled up with zeros; what is no number stays none, in its own eight."""
    x = np.array([numbers], np.float32)
    whole = np.pad(x, [(0, 0), (0, -len(numbers) % 8)])
    want = BFP16.quantize(whole).dequantize()[:, : len(numbers)]
    assert np.array_equal(bfp16(x, 1), want) and np.array_equal(bfp16(x.T, 0), want.T)
    x[0, 0] = np.nan
    with np.errstate(invalid="ignore"):
        got = bfp16(x, 1)
    assert np.isnan(got[0, 0]) and np.array_equal(got[:, 8:], want[:, 8:])
