"""Shapes and indices, as numpy reads them."""

from __future__ import annotations

import numpy as np
import pytest

from iron_core.declare.indexing import by_axis, filled, listed

A = np.arange(24).reshape(2, 3, 4)


@pytest.mark.parametrize("shape", [(6, 4), (6, -1), (-1,), (2, -1, 2)])
def test_a_dimension_that_is_left_to_the_others(shape):
    """One by one or as a tuple or list; -1 is what the others leave."""
    for given in (shape, (shape,), (list(shape),)):
        assert filled(listed(given), A.size) == A.reshape(shape).shape


@pytest.mark.parametrize("shape", [(-1, -1), (0, -1), (5, 5)])
def test_what_is_no_shape_is_left_for_who_asked(shape):
    assert filled(shape, A.size) == shape


@pytest.mark.parametrize("key", [1, (1,), ..., (..., 2), (0, ..., 1), (0, 1, 2, ...), slice(1), (slice(1), ...), ()], ids=str)
def test_a_key_for_every_axis(key):
    """The same elements as without it; more keys than axes stay."""
    keys = by_axis(key, A.ndim)
    assert len(keys) == A.ndim and Ellipsis not in keys
    assert np.array_equal(A[keys], A[key])
    assert by_axis((0, 1, 2, 3), 3) == (0, 1, 2, 3)
