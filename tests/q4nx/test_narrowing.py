"""Numbers of any format as chunks of 4 bits: integers that fit stay as they are, everything else is rounded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from iron_core import Q4_0, Q4_1, Q4NX, Q8_0, BlockQuant, Format, PackedArray, Plane, PlaneQuant, bfloat16
from iron_core.declare.formats import Q4NX_SIGNED, Q4NX_ZERO
from iron_core.errors import CheckpointError
from iron_q4nx import narrowing

SIGNED = BlockQuant("signed", 4, 32, "float32", signed=True)
PAIRS = BlockQuant("pairs", 4, 32, "bfloat16", minimum=True, zero=3, order="pairs")
APART = PlaneQuant("apart", (8, 32), (Plane("values", "uint4", zero=8, apart=True), Plane("scales", "float16", (1, 32), apart=True)))
ZEROS = PlaneQuant("zeros", (1, 32), (Plane("scales", "float16", (1, 32)), Plane("zeros", "uint8", (1, 32)), Plane("values", "uint4")))
WIDE, SIXTY_FOUR = BlockQuant("wide", 5, 32, "float16", zero=16), BlockQuant("sixty_four", 4, 64, "float16", zero=8)
KEPT, ROUNDED = (Q4_0, Q4_1, Q4NX, Q4NX_SIGNED, Q4NX_ZERO, SIGNED, APART), (Q8_0, ZEROS, WIDE, SIXTY_FOUR)


def drawn(format: Format) -> Any:
    return format.quantize(np.random.default_rng(3).standard_normal((64, 320)).astype(np.float32))


def chunked(array: Any, order: np.ndarray | None = None) -> PackedArray:
    raw = np.concatenate([part.reshape(-1) for part in narrowing.made(array, order, narrowing.chunks)])
    return PackedArray(raw, tuple(array.shape), Q4NX)


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype(bfloat16).astype(np.float32)


@pytest.mark.parametrize("format", KEPT, ids=str)
def test_integers_of_four_bits_stay(format: Any) -> None:
    """And their scales and minima, or what their zero points come to, are rounded to bfloat16."""
    array = drawn(format)
    integers, scales, minima = format.fields(array.data, array.shape)
    found, own, least = Q4NX.fields((made := chunked(array)).data, made.shape)
    moved = (integers - found).reshape(64, -1, 32)
    assert (moved == moved[0, 0, 0]).all() and moved[0, 0, 0] in (0, -8)
    np.testing.assert_array_equal(own, wide(scales))
    assert least is not None
    np.testing.assert_array_equal(least, wide((0 if minima is None else minima) + moved[..., 0] * scales))


def test_integers_that_are_moved_beside_minima_stay_too() -> None:
    """scale * (q - 3) + minimum is scale * q + another minimum."""
    rng = np.random.default_rng(0)
    scales, minima = (rng.standard_normal((32, 2)).astype(np.float32) for _ in range(2))
    array = PAIRS.assembled((32, 64), values=rng.integers(0, 16, (32, 64)), scales=scales, minima=minima)
    integers, own, least = Q4NX.fields(chunked(array).data, (32, 64))
    np.testing.assert_array_equal(integers, PAIRS.fields(array.data, array.shape)[0] + 3)
    assert least is not None and np.array_equal(own, wide(scales))
    np.testing.assert_array_equal(least, wide(wide(minima) - 3 * wide(scales)))


@pytest.mark.parametrize("format", ROUNDED, ids=str)
def test_other_numbers_are_rounded(format: Any) -> None:
    """More bits, zero points that differ, scales for another number of columns."""
    array = drawn(format)
    np.testing.assert_array_equal(chunked(array).data, Q4NX.quantize(array.dequantize()).data)


@pytest.mark.parametrize("format", [Q4_1, Q4NX, APART], ids=str)
def test_rows_come_in_any_order(format: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """32 at a time; of a format whose rows are not apart, as numbers."""
    monkeypatch.setattr(narrowing, "_PIECE", 1)
    array, order = drawn(format), np.random.default_rng(1).permutation(64)
    wanted = array[order] if format.by_rows else array.dequantize()[order]
    np.testing.assert_array_equal(chunked(array, order).data, narrowing.chunks(wanted))


def test_others_are_rounded_once_to_bfloat16() -> None:
    """A vector or a table, times a scale."""
    for shape in ((96,), (64, 96)):
        x = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
        for scale in (1.0, 96**0.5):
            raw = np.concatenate([*narrowing.made(x, None, lambda rows: narrowing.narrow(rows, scale))])
            np.testing.assert_array_equal(raw, (x * np.float32(scale)).astype(bfloat16).reshape(-1).view(np.uint8))


def test_scales_that_bfloat16_does_not_hold_are_refused() -> None:
    """Of blocks whose integers stay, too."""
    for scale in (np.nan, 3.4e38):
        array = SIGNED.assembled((32, 32), values=np.zeros((32, 32), np.int8), scales=np.full((32, 1), scale, np.float32))
        with pytest.raises(CheckpointError, match="NaN, infinite or too large for bfloat16"):
            chunked(array)
