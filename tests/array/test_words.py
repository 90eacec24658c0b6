"""Per-call numbers of a design: where each comes from, and what no array takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from iron_core import Auto, DType, Extent, In, Operator, Out, Param, Scratchpad, Value
from iron_core.array.sequence import Word
from iron_core.array.words import CORE_BITS, number
from iron_core.errors import BoundsError


class Rows(Operator):
    """`size` rows of 8, of which a call keeps `valid`, read from `at` on."""

    size: int = Param()
    T: Any = DType(default=np.int8)
    per: int = Auto(default=4)
    valid = Extent(size)
    count = Value(derive=lambda op: -(-op.valid // op.per))
    less = Value(derive=lambda op: op.valid - 3)
    square = Value(derive=lambda op: op.valid * op.valid)
    x = In(size, 8, dtype=T)
    at = Scratchpad(np.int32, within=x)
    y = Out(size, 8, dtype=T)


OP = Rows(size=1 << 16, per=4)


@pytest.mark.parametrize(
    ("word", "members", "want"),
    [
        (Word("at", "offset", ("member", "at")), {"at": 12}, 12),
        (Word("at", "length", ("member", "at")), {"at": np.int32(3)}, 3),
        (Word("valid_x", "length", ("tiles", "valid", 64)), {"valid": 65}, 2),
        (Word("valid_x", "length", ("tiles", "valid", 64)), {"valid": 64}, 1),
        (Word("count", "core", ("value", "count")), {"valid": 9}, 3),
        (Word("at", "offset", ("member", "at", 4, 1, 1)), {"at": 16}, 16),
        (Word("at", "offset", ("member", "at", 4, 32, 20)), {"at": 64}, 40),
        (Word("at", "offset", ("member", "at")), {"at": 0}, 0),
    ],
    ids=repr,
)
def test_the_number_of_a_word(word, members, want):
    """A member itself, in other units, rounded up to tiles, or a derived value under this call's bound."""
    found = number(OP, word, members)
    assert found == want and type(found) is int


@pytest.mark.parametrize("value", [0, -1])
def test_a_stream_moves_at_least_one_tile(value):
    with pytest.raises(BoundsError, match=f"Rows: valid_x is {value} .*an array moves at least one tile of every stream"):
        number(OP, Word("valid_x", "length", ("tiles", "valid", 1)), {"valid": value})


def test_a_word_of_a_core_is_not_negative():
    with pytest.raises(BoundsError, match=f"Rows: less is -2; a core reads {CORE_BITS} bits of a per-call word"):
        number(OP, Word("less", "core", ("value", "less")), {"valid": 1})


@pytest.mark.parametrize(("valid", "fits"), [(32767, True), (32768, False)])
def test_a_word_of_a_core_has_30_bits(valid, fits):
    word = Word("square", "core", ("value", "square"))
    if fits:
        assert number(OP, word, {"valid": valid}) == valid**2 < 1 << CORE_BITS
    else:
        with pytest.raises(BoundsError, match=f"square is {valid**2}; a core reads 30 bits"):
            number(OP, word, {"valid": valid})


@pytest.mark.parametrize(
    ("source", "at", "words"),
    [
        (("member", "at", 4, 1, 1), 6, "a multiple of 4. Nearest legal: 4 or 8"),
        (("member", "at", 4, 32, 18), 32, "a multiple of 64. Nearest legal: 0 or 64"),
        (("member", "at", 4, 32, 18), 33, "a multiple of 64. Nearest legal: 0 or 64"),
    ],
)
def test_an_offset_begins_at_a_whole_word(source, at, words):
    """Bytes of int8 rows and of packed blocks: the message says what is near and legal."""
    with pytest.raises(BoundsError, match=f"at is {at}; an array's transfer begins at a whole 4-byte word, here at {words}"):
        number(OP, Word("at", "offset", source), {"at": at})
