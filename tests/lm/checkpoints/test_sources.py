"""Sources: what is made of a checkpoint's tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import iron_core as iron
from iron_lm.checkpoints.sources import Interleaved, Scaled

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
