"""Sources: what is made of a checkpoint's tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import iron_core as iron
from iron_core.declare.formats import format_of
from iron_lm.checkpoints.sources import Below, Exponential, FirstOf, Interleaved, Name, Reshaped, Scaled, Split, Stack

NUMBERS = np.random.default_rng(1).standard_normal((3, 32)).astype(np.float32)


class One:
    """A reading of one tensor."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def has(self, name: str) -> bool:
        return True

    def tensor(self, name: str, shape: tuple[int, ...]) -> Any:
        return self.array if self.array.shape == shape else None


@pytest.mark.parametrize("blocks", (False, True))
def test_rows_that_take_turns_are_read_part_by_part(blocks: bool) -> None:
    """Each part's in their order; whole rows of a block format move unread. None where the tensor is none of that shape."""
    dense = np.random.default_rng(0).standard_normal((3 * 5, 32)).astype(np.float32)
    stored: Any = iron.Q8_0.quantize(dense) if blocks else dense
    numbers = stored.dequantize() if blocks else stored
    for part, rows in enumerate((2, 3)):
        source = Interleaved("layers.{i}.w", (2, 3), part).at(i="0")
        assert source.names == ("layers.0.w",)
        got = source.read(One(stored), (3 * rows, 32))
        want = [numbers[5 * turn + 2 * part + row] for turn in range(3) for row in range(rows)]
        np.testing.assert_array_equal(got.dequantize() if blocks else got, want)
        assert source.read(One(stored), (4 * rows, 32)) is None


@pytest.mark.parametrize("kind", (np.float16, iron.bfloat16, iron.Q8_0), ids=str)
def test_a_scaled_tensor_is_read_without_its_scale(kind: Any) -> None:
    """In float32, of blocks too. None where the tensor is none of that shape."""
    stored = iron.Dense(kind).quantize(NUMBERS) if kind is not iron.Q8_0 else kind.quantize(NUMBERS)
    numbers = stored.dequantize() if kind is iron.Q8_0 else stored.astype(np.float32)
    source = Scaled("layers.{i}.w", 24.0).at(i="0")
    assert source.names == ("layers.0.w",) and source.read(One(stored), (4, 32)) is None
    got = source.read(One(stored), (3, 32))
    assert got.dtype == np.float32 and np.array_equal(got, numbers / np.float32(24))


class Several:
    """A reading of several tensors, which notes what is missing."""

    def __init__(self, **arrays: Any) -> None:
        self.arrays, self.missing = arrays, []

    def has(self, name: str) -> bool:
        return name in self.arrays

    def tensor(self, name: str, shape: tuple[int, ...]) -> Any:
        if name not in self.arrays:
            self.missing.append(name)
            return None
        return self.arrays[name] if tuple(self.arrays[name].shape) == shape else None


@pytest.mark.parametrize("blocks", (False, True))
def test_matrices_are_stacked_as_they_are_stored(blocks: bool) -> None:
    """Along a new first axis: numbers, or blocks, which no one widens."""
    dense = [NUMBERS + n for n in range(3)]
    stored = [iron.Q8_0.quantize(matrix) for matrix in dense] if blocks else dense
    source = Stack(tuple(f"e{n}.{{i}}" for n in range(3))).at(i="0")
    reading = Several(**{f"e{n}.0": matrix for n, matrix in enumerate(stored)})
    got: Any = source.read(reading, (3, 3, 32))
    assert got.shape == (3, 3, 32) and format_of(got) == format_of(stored[0])
    for matrix, want in zip(got, stored, strict=True):
        assert np.array_equal(matrix.dequantize(), want.dequantize()) if blocks else np.array_equal(matrix, want)
    del reading.arrays["e1.0"]
    assert source.read(reading, (3, 3, 32)) is None and reading.missing == ["e1.0"]


def test_the_first_source_that_is_there_is_read() -> None:
    """All of its tensors are; of none the last one's faults are noted."""
    both = np.stack([np.concatenate([NUMBERS + n, -NUMBERS - n]) for n in range(2)])
    source = FirstOf(Split("both.{i}", (3, 3), 1, axis=1), Stack(("a.{i}", "b.{i}"))).at(i="4")
    assert source.names == ("both.4", "a.4", "b.4") and source.known[0] == Split(Name("both.4"), (3, 3), 1, axis=1)
    one_by_one = {"a.4": NUMBERS, "b.4": NUMBERS + 1}
    assert np.array_equal(source.read(Several(**{"both.4": both}), (2, 3, 32)), both[:, 3:])
    assert np.array_equal(source.read(Several(**one_by_one), (2, 3, 32)), np.stack(list(one_by_one.values())))
    assert np.array_equal(source.read(Several(**one_by_one, **{"both.4": both}), (2, 3, 32)), both[:, 3:])
    nothing = Several(**{"a.4": NUMBERS})
    assert source.read(nothing, (2, 3, 32)) is None and nothing.missing == ["b.4"]


@pytest.mark.parametrize("blocks", (False, True))
def test_matrices_are_put_one_below_another(blocks: bool) -> None:
    """Each with its own rows, dense or in blocks; None where one is missing."""
    dense = [NUMBERS[:1], NUMBERS[1:]]
    stored: Any = [iron.Q8_0.quantize(array) for array in dense] if blocks else dense
    source = Below(((Name("l.{i}.a"), 1), (Name("l.{i}.b"), 2))).at(i="0")
    assert source.names == ("l.0.a", "l.0.b")
    got = source.read(Several(**{"l.0.a": stored[0], "l.0.b": stored[1]}), (3, 32))
    want = np.concatenate([array.dequantize() if blocks else array for array in stored])
    np.testing.assert_array_equal(got.dequantize() if blocks else got, want)
    assert source.read(Several(**{"l.0.a": stored[0]}), (3, 32)) is None


def test_axes_of_one_number_come_and_go() -> None:
    """A vector that is a row here, and a kernel that has an axis more there."""
    assert Reshaped("w", (-1,)).read(One(NUMBERS[0]), (1, 32)).shape == (1, 32)
    np.testing.assert_array_equal(Reshaped("w", (-2, 1, -1)).read(One(NUMBERS[:, None]), (3, 32)), NUMBERS)
    assert Reshaped("w", (-2, 1, -1)).read(One(NUMBERS), (3, 32)) is None


def test_a_logarithm_is_read_as_its_number() -> None:
    """In float32."""
    got = Exponential("w").read(One(NUMBERS[0].astype(np.float16)), (32,))
    assert got.dtype == np.float32 and np.allclose(got, np.exp(NUMBERS[0]), rtol=2e-3)
    assert Exponential("w").read(One(NUMBERS[0]), (31,)) is None
