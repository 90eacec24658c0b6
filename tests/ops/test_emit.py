"""`Emit`: a table of expressions evaluated into the next call's words and carried values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iron_core.declare.affine import Affine
from iron_core.declare.row import Row
from iron_core.errors import ParamError
from iron_ops_aie import Emit


def emit(planes, rows, slots):
    """Words and state as lists."""
    planes = np.asarray(planes, np.int32)
    op = Emit(carried=planes.shape[1], slots=slots)
    words, state = op.reference(planes, np.asarray(rows, np.int32))
    return words.tolist(), state.tolist()


def test_rows_become_words_first_and_carried_values_after():
    """Plane 0 holds what the call started from, plane 1 what it computed."""
    p = Affine("p")
    rows = [
        (p * 64).row(0, 0),
        (p + 1).row(0, 0, shift=2),
        p.row(1, 1),
        (p + 1).row(0, 0),
        p.row(1, 1),
    ]
    assert emit([[5, 0], [0, 42]], rows, slots=3) == ([320, 24, 42], [6, 42])


def test_an_all_zero_row_gives_zero():
    """A slot nothing is bound to."""
    assert emit([[7], [9]], [[0] * 9, Row.constant(11)], slots=1) == ([0], [11])


def test_arithmetic_wraps_at_32_bits():
    """The low 32 bits of the number are kept."""
    p = Affine("p")
    rows = [(p * 2).row(), (p + 1).row(), p.row(shift=1), p.row()]
    assert emit([[2**31 - 1], [0]], rows, slots=3) == ([-2, -(2**31), -2], [2**31 - 1])


expressions = st.builds(
    lambda scale, bias, by, mul, add: ((Affine("p") * scale + bias) // by) * mul + add,
    st.integers(1, 500),
    st.integers(-500, 500),
    st.integers(1, 300),
    st.integers(1, 500),
    st.integers(-500, 500),
)


@given(expressions, st.integers(0, 1000))
@settings(max_examples=200, deadline=None)
def test_a_row_is_its_expression(expression, value):
    """Any expression a body can make of one value: the table and the host evaluate it alike, floors included."""
    row = expression.row()
    assert emit([[value], [0]], [row, row], slots=1) == ([expression.at({"p": value})], [expression.at({"p": value})])


def test_a_program_has_a_row_for_every_word():
    """Slots first, then carried values."""
    with pytest.raises(ParamError, match=r"program has 4 rows, not slots=2 plus carried=1\. Legal: 3\."):
        Emit(carried=1, slots=2, rows=4)
