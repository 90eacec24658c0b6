"""Matrices as int8 with one scale: the rule, and what has none."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from iron_core import Q4_1, Q8_0
from iron_core.errors import CheckpointError
from iron_lm.int8 import numbers_of, scale_of
from iron_lm.quantizing import quantized

F32 = np.float32


def test_a_number_is_the_nearest_integer_of_units() -> None:
    """The largest is 127 units; ties go to the even one; -128 is never used."""
    matrix = quantized("w", [np.array([[127, 0.5, 1.5, 2.5], [-127, -0.5, -126.5, 0]], F32)])
    integers, scale = numbers_of(matrix)
    assert scale == 1 and integers.tolist() == [[127, 0, 2, 2], [-127, 0, -126, 0]]
    np.testing.assert_array_equal(matrix.dequantize(), integers.astype(F32))


def test_matrices_one_below_another_share_a_scale() -> None:
    """What is stored is the integers, row by row, where they lie, and the scale behind them."""
    small, large = np.full((1, 4), 0.5, F32), np.full((2, 4), -127.0, F32)
    matrix = quantized("w", [small, large])
    integers, scale = numbers_of(matrix)
    assert matrix.shape == (3, 4) and matrix.nbytes == 3 * 4 + 4 and scale == scale_of(matrix) == 1
    assert integers.tolist() == [[0] * 4, [-127] * 4, [-127] * 4] and np.shares_memory(integers, matrix.data)
    assert scale_of(small) is None and scale_of(Q8_0.quantize(np.zeros((1, 32), F32))) is None


@pytest.mark.parametrize("stored", [
    lambda w: w.astype(ml_dtypes.bfloat16), lambda w: w.astype(np.float16), lambda w: w[:, ::-1], Q4_1.quantize, Q8_0.quantize,
], ids=["bfloat16", "float16", "turned", "q4_1", "q8_0"])  # fmt: skip
def test_it_is_made_of_float32_numbers_whatever_they_are_stored_as(stored: Any, rng: np.random.Generator) -> None:
    """Large enough to be cut among threads: as one matrix of float32 is rounded."""
    weight = stored(rng.standard_normal((700, 512)).astype(F32))
    numbers = (weight if isinstance(weight, np.ndarray) else weight.dequantize()).astype(F32)
    integers, scale = numbers_of(quantized("w", [weight]))
    assert scale == F32(np.abs(numbers).max() / F32(127))
    np.testing.assert_array_equal(integers, np.rint(numbers * (F32(1) / F32(scale))).astype(np.int8))


def test_a_matrix_of_zeros_has_the_scale_1() -> None:
    """So does one whose numbers are too small to be divided by: its integers are 0."""
    for tiny in (0.0, 1e-40):
        integers, scale = numbers_of(quantized("w", [np.full((2, 32), tiny, F32)]))
        assert scale == 1 and not integers.any()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_has_no_integer(bad: float) -> None:
    """It is refused by the path of the matrix."""
    weight = np.ones((3, 32), F32)
    weight[1, 5] = bad
    with pytest.raises(CheckpointError, match=r"layers\.0\.mixer\.o holds numbers that are NaN or infinite"):
        quantized("layers.0.mixer.o", [weight])
