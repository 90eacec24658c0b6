"""Matrices as int8 with one scale for each, symmetric: what `--quantize int8` makes of projections."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import Format, PackedArray, Plane, PlaneQuant

#: A matrix: its integers row by row, then the number that one unit stands for, float32.
INT8: Format = PlaneQuant("int8_tensor", (1, 1), (Plane("values", "int8"), Plane("scales", np.float32, (0, 0), apart=True)))
#: What a unit of activations stands for where their scale is fixed: numbers to within 5 are told apart.
FIXED = 5 / 127


def numbers_of(matrix: PackedArray) -> tuple[np.ndarray, float]:
    """Of a matrix in `INT8`: its integers (N, K), where they lie, and its scale."""
    rows, columns = matrix.shape
    integers, scale = matrix.data[: rows * columns], matrix.data[rows * columns :]
    return integers.view(np.int8).reshape(rows, columns), float(scale.view(np.float32)[0])


def scale_of(matrix: Any) -> float | None:
    """The scale of a matrix in `INT8`; None of any other tensor."""
    return numbers_of(matrix)[1] if getattr(matrix, "format", None) == INT8 else None
