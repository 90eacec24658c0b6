"""What array() sees of its operator: streams, values and fields of the array tier; an extent stops it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from iron_core import Auto, DType, Extent, In, Operator, Out, Param, Scratchpad, Value, bfloat16
from iron_core.array import Lane, ObjectType, Tile
from iron_core.array.build import build_array
from iron_core.array.view import view
from iron_core.array.worker import BoundValue
from iron_core.errors import DeclarationError


class Rows(Operator):
    """`size` numbers in tiles over lanes, with everything a declaration may have."""

    size: int = Param()
    scale: int = Param(default=3, array=True)
    T: Any = DType(default=bfloat16)
    tile_size: int = Auto(default=64)
    columns: int = Auto(default=4)
    with_bias: bool = Param(default=False)
    valid = Extent(size)
    count = Value(derive=lambda op: op.valid // op.tile_size)
    at = Scratchpad(np.int32)
    x = In(size, dtype=T, tile=tile_size, per=(columns, 2), depth=3)
    bias = In(tile_size, dtype=T, tile=tile_size, per=columns, replicate=True, when=with_bias)
    host = In(size, dtype=T)
    y = Out(size, dtype=T, tile=(tile_size, 2), per=columns)

    def reference(self, x: Any, bias: Any, host: Any, *, at: int = 0) -> Any:
        return x

    def helper(self) -> int:
        return self.size

    def plain(self) -> int:
        return self.scale + self.tile_size


@pytest.fixture
def seen():
    return view(Rows(size=4096, tile_size=64, columns=4))


def test_streams_have_the_type_and_lanes_they_were_declared_with(seen):
    assert seen.x.tile == ObjectType((64,), "bfloat16") and seen.y.tile == ObjectType((64, 2), "bfloat16")
    assert (seen.x.lanes, seen.y.lanes, seen.bias.lanes) == (8, 4, 4)
    assert (seen.x.depth, seen.y.depth, seen.x.name) == (3, 2, "x")


def test_a_lane_is_a_shim_end(seen):
    tile = Tile("shim", col=1)
    lane = seen.x.lane(7, tile)
    assert isinstance(lane, Lane) and (lane.operand, lane.index, lane.tile) == ("x", 7, tile)


@pytest.mark.parametrize("index", [8, -1])
def test_a_lane_that_is_not_there(seen, index):
    with pytest.raises(DeclarationError, match=rf"Rows.x: lane {index}; legal: 0 to 7"):
        seen.x.lane(index)


def test_an_operand_that_is_no_stream(seen):
    """It reaches the array down another operand's lane, if at all."""
    for use in (lambda: seen.host.tile, lambda: seen.host.lane(0)):
        with pytest.raises(DeclarationError, match=r"Rows.host has no tile=; it is no stream of its own"):
            use()


def test_fields_of_the_array_tier_are_as_they_are(seen):
    """Tunables that shape streams, dtypes of streams, flags of streams, and what says array=True."""
    assert Rows.array_tier == {"scale", "T", "tile_size", "columns", "with_bias"}
    assert (seen.scale, seen.tile_size, seen.columns, seen.with_bias) == (3, 64, 4, False)
    assert seen.plain() == 67


@pytest.mark.parametrize("read", [lambda op: op.size, lambda op: op.helper(), lambda op: getattr(op, "size")])  # noqa: B009
def test_an_extent_is_not_to_be_read(seen, read):
    """Nor by a method that array() calls."""
    with pytest.raises(DeclarationError, match=r"Rows.array\(\) reads the extent size; one array serves every extent. Legal: T, columns"):
        read(seen)


def test_a_bounded_extent_is_not_to_be_read(seen):
    with pytest.raises(DeclarationError, match=r"Rows.array\(\) reads the extent size; one array serves every extent"):
        seen.valid  # noqa: B018


def test_a_value_has_a_name_and_no_number(seen):
    """It is what `Worker(values=)` takes; a number would depend on extents."""
    assert seen.count == BoundValue("count") and not isinstance(seen.count, int)


def test_the_operator_itself_is_left_alone():
    op = Rows(size=4096)
    view(op)
    assert op.size == 4096 and type(op) is Rows and op.valid == 4096


def test_a_view_shows_what_it_has(seen):
    assert repr(seen) == "Rows(scale=3, T='bfloat16', tile_size=64, columns=4, with_bias=False)"


class Greedy(Rows):
    def array(self, target):
        return [None] * (self.size // self.tile_size)


def test_array_itself_is_stopped():
    with pytest.raises(DeclarationError, match=r"Greedy.array\(\) reads the extent size"):
        build_array(Greedy(size=4096).resolved("npu2"), "npu2")


class Inherited(Rows):
    """A subclass's view is its own, and super() works in it."""

    more: int = Param(default=2, array=True)

    def plain(self) -> int:
        return super().plain() * self.more


def test_a_view_of_a_subclass():
    assert view(Inherited(size=64).resolved("npu2")).plain() == (3 + 64) * 2
