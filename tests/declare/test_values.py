"""Scalars: values the cores read, extents a call may bound, and the three kinds of per-call integer."""

from __future__ import annotations

import numpy as np
import pytest

import iron_core as iron
from iron_core.declare.affine import Affine
from iron_core.declare.value import PerCall
from iron_core.errors import DeclarationError


class Rows(iron.Operator):
    rows: int = iron.Param()
    cols: int = iron.Param()
    tile: int = iron.Auto(4)
    x = iron.In(rows, cols)
    y = iron.Out(rows, cols)
    valid = iron.Extent(rows)
    count = iron.Value(derive=lambda op: -(-op.valid // op.tile))
    width = iron.Value(derive=lambda op: op.cols)
    mode = iron.Value(np.int32, optional=True)

    def reference(self, x):
        return x


def test_a_value_is_derived_from_the_operator():
    """Read on an instance it is its number; without a rule it is bound by a graph and reads None."""
    op = Rows(rows=10, cols=3, tile=4)
    assert (op.count, op.width, op.mode) == (3, 3, None)


def test_a_value_whose_rule_reads_an_extent_follows_it():
    """Such a value is an expression of what a call gives where a graph bounds the extent; the others are written once."""
    op = Rows(rows=10, cols=3, tile=4)
    bounds = {"valid": Affine("n") * 2 + 1}
    form = Rows.values["count"].form(op, bounds)
    assert form.key == ((2 * Affine("n") + 1 + 3) // 4).key and [form.at({"n": n}) for n in (0, 1, 2)] == [1, 1, 2]
    assert Rows.values["count"].form(op, {}) == 3
    assert Rows.values["width"].form(op, bounds) == 3
    assert Rows.values["mode"].form(op, bounds) is None
    assert (op.valid, op.count) == (10, 3), "the operator itself is as it is"


def test_a_value_may_be_made_of_another_one():
    """Two rules in a row are one expression."""

    class Twice(Rows):
        double = iron.Value(derive=lambda op: 2 * op.count)

    op = Twice(rows=10, cols=3, tile=4)
    assert op.double == 6
    assert Twice.values["double"].form(op, {"valid": Affine("n")}).key == ((Affine("n") + 3) // 4 * 2).key


def test_an_extent_reads_as_its_field():
    """Until a call bounds it, and then as the bound."""
    op = Rows(rows=10, cols=3, tile=4)
    assert op.valid == 10
    assert op.bounded(rows=6).count == 2


@pytest.mark.parametrize("kind", [iron.Scratchpad, iron.Carried, iron.DispatchTime])
def test_per_call_kinds_annotate_and_are_members(kind):
    """Subscripted, the annotation of a body's keyword; called, an operator's member. 32-bit integers only."""
    assert kind[np.int32] == PerCall(kind.kind, np.dtype(np.int32))
    assert kind(np.uint32).dtype == np.uint32
    for dtype in (np.float32, np.int64, bool):
        with pytest.raises(DeclarationError, match=r"legal: np\.int32, np\.uint32"):
            kind[dtype]


def test_a_value_is_an_integer_word():
    """A core reads 32-bit words; a float travels as its bits."""
    with pytest.raises(DeclarationError, match="bits as int32"):
        iron.Value(np.float32)
