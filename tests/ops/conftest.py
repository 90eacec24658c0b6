"""Fixtures of the operator tests."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture
def rng():
    """Numbers that are the same in every run."""
    return np.random.default_rng(1)


@pytest.fixture
def draw(rng):
    """`draw(op)`: inputs for an operator, as its own test cases draw them, in the order of `reference()`."""

    def drawn(op):
        given = type(op).test.draw(op, rng)
        return tuple(given.get(operand.name) for operand in op.inputs)

    return drawn
