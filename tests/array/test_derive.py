"""The sequence of an operator that declares none: every stream's share of its operand, drains first, all awaited."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from iron_core import Auto, DType, Extent, In, InOut, Operator, Out, Param, Scratchpad
from iron_core.array import ObjectFifo, Worker
from iron_core.array.build import build
from iron_core.array.sequence import Await, Free, Transfer, Word
from iron_core.declare.affine import Affine
from iron_core.errors import DeclarationError, Unresolvable


class Streams(Operator):
    """`rows` x 16 numbers in tiles of `tile` rows over `lanes`, with a table that every lane gets whole."""

    rows: int = Param()
    T: Any = DType(default=np.int32)
    tile: int = Auto(default=2)
    lanes: int = Auto(default=2)
    valid = Extent(rows)
    x = In(rows, 16, dtype=T, tile=(tile, 16), per=lanes)
    table = In(4, 16, dtype=T, tile=(4, 16), per=lanes, replicate=True)
    unused = In(rows, 16, dtype=T)
    x_offset = Scratchpad(np.int32, within=x)
    y = Out(rows, 16, dtype=T, tile=(tile, 16), per=lanes)

    def reference(self, x, table, unused, *, x_offset=0):
        return x

    def array(self, target):
        def core(*ends):
            for end in ends:
                end.acquire()
                end.release()

        for i in range(self.lanes):
            x, table, y = (ObjectFifo(getattr(self, n).tile, name=f"{n}{i}") for n in ("x", "table", "y"))
            x.prod(tile=self.x.lane(i))
            table.prod(tile=self.table.lane(i))
            y.cons(tile=self.y.lane(i))
            Worker(core, [x.cons(), table.cons(), y.prod()], name=f"core{i}")


def sequence(bound=(), **fields):
    return build(Streams(**{"rows": 16, **fields}), "npu2", bound).design.sequence


def moved(transfer, length=None):
    """The elements of a transfer, in order."""
    return np.concatenate([d.addresses(length) for d in transfer.descriptors])


def test_drains_go_out_before_the_fills_that_feed_them():
    """And only drains are awaited: when an output is there, every input was read."""
    steps = sequence().steps
    shown = [f"{s.way} {s.fifo}" if isinstance(s, Transfer) else type(s).__name__ for s in steps]
    assert shown == ["drain y0", "drain y1", "fill x0", "fill x1", "fill table0", "fill table1", *["Await"] * 2, *["Free"] * 4]
    ways = {s.task: s.way for s in steps if isinstance(s, Transfer)}
    assert {ways[s.task] for s in steps if isinstance(s, Await)} == {"drain"}
    assert {ways[s.task] for s in steps if isinstance(s, Free)} == {"fill"}


def test_lanes_get_equal_shares_side_by_side():
    y0, y1, x0, x1, *_ = sequence().transfers()
    for first, second in ((y0, y1), (x0, x1)):
        assert (moved(first) == np.arange(128)).all() and (moved(second) == np.arange(128, 256)).all()


def test_a_replicated_operand_goes_whole_down_every_lane():
    *_, one, two = sequence().transfers()
    assert one.operand == two.operand == "table"
    assert (moved(one) == np.arange(64)).all() and (moved(two) == np.arange(64)).all()


def test_what_is_no_stream_is_not_moved():
    assert "unused" not in {t.operand for t in sequence().transfers()}


def test_under_a_bound_lanes_take_turns():
    """So that whatever a call keeps is spread over all of them."""
    seq = sequence({"valid"})
    y0, y1, *_ = seq.transfers()
    tiles = np.arange(256).reshape(4, 2, 32)
    assert (moved(y0) == tiles[:, 0].ravel()).all() and (moved(y1) == tiles[:, 1].ravel()).all()
    assert y0.length_by == y1.length_by and y0.length_by.form.key == Affine("valid").ceildiv(4).key and y0.unit == 32
    assert (moved(y1, 3 * y1.unit) == tiles[:3, 1].ravel()).all()


def test_what_a_bound_does_not_touch_is_moved_whole():
    *_, one, two = sequence({"valid"}).transfers()
    assert one.length_by is None and (moved(one) == np.arange(64)).all() and (moved(two) == moved(one)).all()


def test_an_offset_member_is_named_after_its_operand():
    by_operand = {t.operand: t for t in sequence({"x_offset"}).transfers()}
    assert by_operand["x"].offset_by == Word("x_offset", "offset", Affine("x_offset"))
    assert by_operand["y"].offset_by is by_operand["table"].offset_by is None


@pytest.mark.parametrize(("rows", "lanes"), [(6, 2), (16, 3)])
def test_shares_are_whole_tiles(rows, lanes):
    with pytest.raises(Unresolvable, match=f"Streams.y: {rows * 16} elements do not divide into tiles of 32 over {lanes} lanes"):
        sequence(rows=rows, lanes=lanes)


class Columns(Streams):
    """Bounded along an axis that is not the first."""

    wide = Param(default=16)
    most = Extent(wide)
    z = Out(4, wide, tile=(4, 16), dtype=np.int32)


def test_only_the_first_axis_can_be_bounded():
    with pytest.raises(Unresolvable, match=r"Columns.z: only its first axis can be bounded per call, not wide"):
        build(Columns(rows=16), "npu2", {"most"})


class Flat(Streams):
    """Tiles that are no whole rows."""

    z = Out(Streams.rows, 16, tile=24, dtype=np.int32)


def test_bounded_tiles_are_whole_rows():
    with pytest.raises(Unresolvable, match=r"Flat.z: tiles of 24 are not whole rows of 16"):
        build(Flat(rows=48), "npu2", {"valid"})


class InPlace(Streams):
    kept = InOut(Streams.rows, 16, tile=(Streams.tile, 16), dtype=np.int32)

    def reference(self, x, table, unused, kept, *, x_offset=0):
        return kept, x


def test_what_is_read_and_written_has_no_derived_sequence():
    with pytest.raises(DeclarationError, match=r"InPlace.kept is InOut: .* Declare sequence\(rt\)"):
        build(InPlace(rows=16), "npu2")
