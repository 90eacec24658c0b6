"""A packed tensor whose bytes are made where they are asked for."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from iron_core import Q8_0
from iron_core.declare.formats import LazyPackedArray, PackedArray
from iron_core.errors import FormatError

SHAPE = (4, 64)


def made(calls: list[int], nbytes: int = Q8_0.nbytes(SHAPE)) -> LazyPackedArray:
    """A tensor of rising bytes, which notes each time that they are made."""

    def make() -> np.ndarray:
        calls.append(len(calls))
        return np.arange(nbytes, dtype=np.uint8)

    return LazyPackedArray(make, SHAPE, Q8_0)


def test_bytes_are_made_once_while_somebody_holds_them() -> None:
    """Also where only a view of them is held; later they are made again, the same."""
    calls: list[int] = []
    lazy = made(calls)
    assert (lazy.shape, lazy.ndim, lazy.size, lazy.nbytes, lazy.format) == (SHAPE, 2, 256, Q8_0.nbytes(SHAPE), Q8_0) and not calls
    part = lazy[1:3]
    assert np.shares_memory(part.data, lazy.data) and calls == [0]
    whole = lazy.data.copy()
    del part
    gc.collect()
    assert np.array_equal(lazy.data, whole) and calls == [0, 1]


def test_it_is_the_packed_array_of_its_bytes() -> None:
    """Numbers, rows, other shapes and copies are those of one that holds its bytes."""
    lazy = made([])
    plain = PackedArray(np.arange(lazy.nbytes, dtype=np.uint8), SHAPE, Q8_0)
    for seen in (lazy, lazy.copy(), lazy.reshape(2, 2, 64), lazy[:]):
        assert isinstance(seen, PackedArray) and np.array_equal(seen.dequantize().reshape(SHAPE), plain.dequantize(), equal_nan=True)
    assert repr(lazy) == repr(plain) and type(lazy.copy()) is PackedArray


def test_a_wrong_number_of_bytes_is_told_where_they_are_asked_for() -> None:
    """A shape of no whole blocks at once."""
    with pytest.raises(FormatError, match=r"shape=\(4, 64\)\) is 272 bytes \(uint8\); its data was made as 271 of uint8"):
        _ = made([], 271).data
    with pytest.raises(FormatError, match="whole blocks of 32"):
        LazyPackedArray(lambda: np.empty(0, np.uint8), (4, 33), Q8_0)
