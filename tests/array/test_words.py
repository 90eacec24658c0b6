"""Per-call numbers of a design: where each comes from, and what no array takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from iron_core import Auto, DType, Extent, In, Operator, Out, Param, Scratchpad, Value
from iron_core.array.sequence import Word
from iron_core.array.words import CORE_BITS, number
from iron_core.declare.affine import Affine
from iron_core.errors import BoundsError, DeclarationError


class Rows(Operator):
    """`size` rows of 8, of which a call keeps `valid`, read from `at` on."""

    size: int = Param()
    T: Any = DType(default=np.int8)
    per: int = Auto(default=4)
    valid = Extent(size)
    count = Value(derive=lambda op: -(-op.valid // op.per))
    less = Value(derive=lambda op: op.valid - 3)
    large = Value(derive=lambda op: op.valid * op.size)
    square = Value(derive=lambda op: op.valid * op.valid)
    x = In(size, 8, dtype=T)
    at = Scratchpad(np.int32, within=x)
    y = Out(size, 8, dtype=T)

    def reference(self, x, *, at=0):
        return x


OP = Rows(size=1 << 15, per=4)


def form(name):
    """A derived value where calls bound `valid`."""
    return Rows.values[name].form(OP, {"valid": Affine("valid")})


@pytest.mark.parametrize(
    ("word", "members", "want"),
    [
        (Word("at", "offset", Affine("at")), {"at": 12}, 12),
        (Word("at", "length", Affine("at")), {"at": np.int32(3)}, 3),
        (Word("valid_x", "length", Affine("valid").ceildiv(64)), {"valid": 65}, 2),
        (Word("valid_x", "length", Affine("valid").ceildiv(64)), {"valid": 64}, 1),
        (Word("count", "core", form("count")), {"valid": 9}, 3),
        (Word("at", "offset", Affine("at"), 4), {"at": 16}, 16),
        (Word("at", "offset", Affine("at") // 32 * 20, 32), {"at": 64}, 40),
        (Word("at", "offset", Affine("at")), {"at": 0}, 0),
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
        number(OP, Word("valid_x", "length", Affine("valid").ceildiv(1)), {"valid": value})


def test_a_word_of_a_core_is_not_negative():
    with pytest.raises(BoundsError, match=f"Rows: less is -2; a core reads {CORE_BITS} bits of a per-call word"):
        number(OP, Word("less", "core", form("less")), {"valid": 1})


@pytest.mark.parametrize(("valid", "fits"), [(32767, True), (32768, False)])
def test_a_word_of_a_core_has_30_bits(valid, fits):
    word = Word("large", "core", form("large"))
    if fits:
        assert number(OP, word, {"valid": valid}) == valid * OP.size < 1 << CORE_BITS
    else:
        with pytest.raises(BoundsError, match=f"large is {valid * OP.size}; a core reads 30 bits"):
            number(OP, word, {"valid": valid})


def test_a_rule_that_no_table_holds_is_refused_when_the_design_is_made():
    """Not at a call: the message names the value, the extent and what a rule may do."""
    with pytest.raises(DeclarationError, match=r"Rows\.square follows valid by a rule that no table holds: a product of two.*Legal: sums"):
        form("square")


@pytest.mark.parametrize(
    ("every", "at", "words"),
    [
        (4, 6, "a multiple of 4. Nearest legal: 4 or 8"),
        (64, 32, "a multiple of 64. Nearest legal: 0 or 64"),
        (64, 33, "a multiple of 64. Nearest legal: 0 or 64"),
    ],
)
def test_an_offset_begins_at_a_whole_word(every, at, words):
    """Bytes of int8 rows and of packed blocks: the message says what is near and legal."""
    with pytest.raises(BoundsError, match=f"at is {at}; an array's transfer begins at a whole 4-byte word, here at {words}"):
        number(OP, Word("at", "offset", Affine("at"), every), {"at": at})
