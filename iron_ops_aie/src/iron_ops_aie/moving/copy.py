"""`Copy`: the one data mover. Views on both sides, per-call offsets and bounds, gathers."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import (
    Auto,
    Case,
    Divisors,
    DType,
    In,
    Operator,
    Out,
    PackedArray,
    Param,
    Pattern,
    Scratchpad,
    Testing,
    Tolerance,
    Width,
    bfloat16,
    round_to,
)
from iron_core.declare.formats import as_format
from iron_core.declare.operator import ViewMembers
from iron_core.errors import ParamError, ShapeError
from iron_ops_aie.moving.copy_array import CopyArray
from iron_ops_aie.moving.copy_patterns import byte_pattern, largest_object, steady, word_elements


class Copy(CopyArray, Operator):
    """y[dst] = x[src], element by element in the order the two patterns walk; numbers are rounded once to y's dtype.

    x: `input_size` elements, y: `output_size`; `src` and `dst` say which of them (a tuple of patterns is walked in
    turn). With `ids` the rows `ids` of x, a table of `table_rows` rows, are read instead: an id counts from the end
    when negative and is clipped to the table. Per call, `in_offset` and `out_offset` move the patterns (elements),
    and `src_valid`, `dst_valid` keep the first n along `src_axis`, `dst_axis` (for a gather, the first n ids).
    Elements of y outside `dst` stay as they were. A block format moves as packed bytes: patterns take whole blocks.
    In a graph: `Copy(x)`, `Copy(x[:, 3])`, `Copy(x, cache[pos])`, `Copy(table[ids])`.

    A number becomes the nearest of the other dtype; a float outside an integer dtype's range becomes the nearer end of it.

    The array has no cores: `num_channels` channels share out every run that both sides step through, and each passes it on
    in objects of `tile_size` elements (of a block format: bytes). For a gather a channel is a feed, of two columns. An array
    moves bytes as they are, in whole 4-byte words.

    Errors: ParamError where the patterns leave a buffer, differ in size or write an element twice, or a conversion is
    between formats. Unresolvable where no array takes it.
    """

    input_size: int = Param()
    output_size: int = Param(default=lambda op: op.elements)
    src: Any = Param(default=None)
    dst: Any = Param(default=None)
    src_axis: Any = Param(default=None)
    dst_axis: Any = Param(default=None)
    gather: bool = Param(default=False, array=True)
    table_rows: int = Param(default=1)
    rows: int = Param(default=0)
    X: Any = DType(default=bfloat16, blocks=True)
    Y: Any = DType(default=lambda op: op.X, blocks=True)
    num_channels: int = Auto(default=1, domain=Width())
    tile_size: int = Auto(
        domain=Divisors(of=lambda op, dev: steady(op, op.num_channels, dev), step=word_elements, cap=largest_object, span=3)
    )
    x = In(input_size, dtype=X, tile=tile_size, per=num_channels)
    ids = In(rows, dtype=np.int32, when=gather)
    y = Out(output_size, dtype=Y, tile=tile_size, per=num_channels)
    in_offset = Scratchpad(np.int32)
    out_offset = Scratchpad(np.int32)
    src_valid = Scratchpad(np.int32)
    dst_valid = Scratchpad(np.int32)

    accept_views = {
        "x": ViewMembers("src", "in_offset", "src_valid", "src_axis", rows="table_rows"),
        "y": ViewMembers("dst", "out_offset", "dst_valid", "dst_axis"),
    }
    accept_gather = "ids"
    partial = ("y",)

    test = Testing(
        Case(input_size=4096, bench=True, lower=True),
        Case(input_size=100, X=np.float32, Y=bfloat16),
        Case(input_size=100, X=np.float32, Y=np.float16),
        Case(input_size=64, X=bfloat16, Y=np.float32),
        Case(input_size=64, X=np.int32, lower=True),
        Case(input_size=6 * 35, src=Pattern(2, (5, 3, 4), (35, 7, 1)), X=np.float32, lower=True),
        Case(input_size=60, output_size=200, dst=Pattern(5, (3, 4, 5), (50, 10, 2)), X=bfloat16),
        Case(input_size=12 * 8, gather=True, table_rows=12, rows=5, X=np.float32, lower=True),
        Case(input_size=1024, num_channels=2, X=np.int8, lower=True),
        Case(input_size=24 * 40, src=Pattern(8, (3, 6, 16), (320, 40, 1)), num_channels=4, tile_size=24, lower=True),
        Case(input_size=96 * 4, src=tuple(Pattern(96 * i, (96,), (1,)) for i in (3, 1, 2, 0)), X=np.float32, lower=True),
        draw=dict(centered=("x",), ids=lambda op, rng: rng.integers(-op.table_rows, op.table_rows, op.rows)),
    )

    @property
    def elements(self) -> int:
        """Elements moved by one unbounded call."""
        if self.gather:
            return self.rows * self._row
        return sum(p.size for p in _patterns(self.src)) if self.src is not None else self.input_size

    @property
    def _row(self) -> int:
        """Elements of one row of a gather's table."""
        return self.input_size // max(1, self.table_rows)

    @property
    def source(self) -> tuple[Pattern, ...]:
        """The patterns read, in turn (of one table row for a gather)."""
        if self.gather:
            return (Pattern.whole((self._row,)),)
        return _patterns(self.src) if self.src is not None else (Pattern.whole((self.input_size,)),)

    @property
    def target(self) -> tuple[Pattern, ...]:
        """The patterns written, in turn."""
        return _patterns(self.dst) if self.dst is not None else (Pattern.whole((self.elements,)),)

    def validate(self) -> None:
        if self.gather and (self.table_rows < 1 or self.input_size % self.table_rows):
            raise ParamError(f"Copy: table_rows={self.table_rows} does not divide input_size={self.input_size}. Legal: a divisor of it.")
        if self.gather and self.src is not None:
            raise ParamError("Copy: src= and ids exclude each other; a gather reads whole rows. Legal: one of the two.")
        written = sum(p.size for p in self.target)
        if written != self.elements:
            raise ParamError(f"Copy: src has {self.elements} elements, dst {written}; they move one for one.")
        for what, patterns, size in (("src", self.source, self.input_size), ("dst", self.target, self.output_size)):
            for p in patterns:
                if p.size and (p.span[0] < 0 or p.span[1] > size):
                    raise ParamError(f"Copy: {what}={p} touches elements {p.span[0]} to {p.span[1] - 1} of {size}.")
        for p in self.target:
            if any(n > 1 and stride == 0 for n, stride in zip(p.sizes, p.strides, strict=True)):
                raise ParamError(f"Copy: dst={p} writes elements more than once.")
        blocks = as_format(self.X).packed or as_format(self.Y).packed
        if blocks and self.X != self.Y:
            raise ParamError(f"Copy moves packed bytes: from {self.X.name} to {self.Y.name} is not a copy. Dequant makes numbers.")
        if blocks:
            for p in (*self.source, *self.target):
                byte_pattern(p, self.X)

    def reference(
        self,
        x: Any,
        ids: Any = None,
        *,
        y: Any,
        in_offset: int = 0,
        out_offset: int = 0,
        src_valid: int | None = None,
        dst_valid: int | None = None,
    ) -> Any:
        source, target = self.source, self.target
        packed = isinstance(x, PackedArray)
        if packed:
            unit = self.X.block_bytes
            flat, out = x.data.reshape(-1), y.data.reshape(-1)
            source = tuple(byte_pattern(p, self.X) for p in source)
            target = tuple(byte_pattern(p, self.X) for p in target)
            in_offset, out_offset = (n // self.X.block[1] * unit for n in (in_offset, out_offset))
        else:
            flat, out = x.reshape(-1), y.reshape(-1)
        if self.gather:
            table = flat.reshape(self.table_rows, -1)
            at = np.clip(ids, -self.table_rows, self.table_rows - 1)[: self.rows if src_valid is None else src_valid]
            moved = table[at].reshape(-1)
        else:
            moved = np.concatenate([_cut(p, self.src_axis, src_valid).shifted(in_offset).view(flat).reshape(-1) for p in source])
        if not packed:
            moved = round_to(moved, out.dtype)
        places = [_cut(p, self.dst_axis, dst_valid).shifted(out_offset).view(out) for p in target]
        if sum(place.size for place in places) != moved.size:
            raise ShapeError(f"Copy: {moved.size} elements read, {sum(place.size for place in places)} to write; bound both alike.")
        start = 0
        for place in places:
            place[...] = moved[start : start + place.size].reshape(place.shape)
            start += place.size
        return y

    def tolerance(self) -> Tolerance:
        return Tolerance(exact=True)


def _patterns(spec: Any) -> tuple[Pattern, ...]:
    return spec if isinstance(spec, tuple) else (spec,)


def _cut(pattern: Pattern, axis: int | None, n: int | None) -> Pattern:
    if n is None:
        return pattern
    if axis is None:
        raise ParamError("Copy: a bound needs the axis it bounds; give src_axis= or dst_axis=.")
    return pattern.cut(axis, n)
