"""Copy on the host: kernels `copy<S, D>` and `gather<S, D>` of move.h."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from iron_core.declare.affine import Affine
from iron_core.declare.field import Auto
from iron_core.declare.formats import as_format
from iron_core.declare.pattern import Pattern
from iron_core.errors import TraceError
from iron_core.graph.traced import Binding
from iron_core.image.plan import BufferRef
from iron_core.lowering.answer import No, Yes
from iron_host.kernel_call import Constant, HostLowering, KernelCall, Lines, Member, Pointer
from iron_host.kernels import COPY, GATHER
from iron_host.lowerings.nest import Axis, nest
from iron_host.lowerings.units import FLOATS, GRAIN, by_width, cpp, name_of, threads, unit

#: Loops of the copy kernel.
LOOPS = 5

#: Patterns walked in turn become this many kernel calls at most.
PIECES = 256


class Copy(HostLowering):
    """One loop nest over both patterns; a gather where rows are picked. `grain`: numbers per thread."""

    operator = "iron_ops_aie.Copy"
    grain = Auto(GRAIN)

    def supports(self, op: Any, dev: str) -> Yes | No:
        if op.X != op.Y and not (name_of(op.X) in FLOATS and name_of(op.Y) in FLOATS):
            return No(f"from {name_of(op.X)} to {name_of(op.Y)}: its kernels convert {', '.join(FLOATS)}")
        return Yes("kernel gather" if op.gather else "kernel copy")

    def moved(self, op: Any, sizes: Mapping[str, int]) -> int:
        # Either side may be a part of a large tensor.
        return 2 * min(sizes["x"], sizes["y"]) + sizes.get("ids", 0)

    def step(
        self, op: Any, operands: Mapping[str, BufferRef], bindings: Mapping[str, Binding], tunables: Mapping[str, Any]
    ) -> list[KernelCall] | No:
        if operands["x"].overlaps(operands["y"]):
            return No("it copies within one tensor, which the kernel does not order")
        try:
            move = _Move(op, bindings, threads(op.elements, tunables["grain"]))
        except TraceError as error:
            return No(f"an offset is not whole blocks: {error}")
        return move.gather() if op.gather else move.copies()


class _Move:
    """One copy in the kernel's units: numbers of a dense dtype, bytes of a block format."""

    def __init__(self, op: Any, bindings: Mapping[str, Binding], many: int) -> None:
        self.op, self.bindings, self.many = op, bindings, many
        self.source, self.target = op.source, op.target
        if as_format(op.X).packed:
            self.types, self.widths = ("uint8_t", "uint8_t"), (1, 1)
            block = op.X.block[1], op.X.block_bytes
            self.source, self.target = (tuple(p.in_units(*block) for p in side) for side in (self.source, self.target))
        else:
            self.widths = (op.X.itemsize, op.Y.itemsize)
            self.types = (by_width(op.X),) * 2 if op.X == op.Y else (cpp(op.X), cpp(op.Y))

    def pointer(self, operand: str, pattern: Pattern) -> Pointer:
        """An operand at a pattern's start, moved by its per-call offset."""
        at, member = (0, "in_offset") if operand == "x" else (1, "out_offset")
        width = self.widths[at]
        offset = pattern.offset * width
        if member not in self.bindings:
            return Pointer(operand, offset)
        expression: Affine | int = self.bindings[member].expression
        if as_format(self.op.X).packed:
            expression, width = expression // self.op.X.block[1], self.op.X.block_bytes
        if isinstance(expression, int):
            return Pointer(operand, offset + expression * width)
        return Pointer(operand, offset, expression, width)

    def trips(self, axis: Axis) -> int | Member:
        if axis.bound is None:
            return axis.size
        return Member(self.bindings["src_valid" if axis.bound == "src" else "dst_valid"].expression)

    def copies(self) -> list[KernelCall] | No:
        picked = self._rows()
        if picked is not None:
            return picked
        calls: list[KernelCall] = []
        kernel = unit("move.h", "copy", *self.types)
        src_axis = self.op.src_axis if "src_valid" in self.bindings else None
        dst_axis = self.op.dst_axis if "dst_valid" in self.bindings else None
        for source, target in self._pieces():
            loops = nest(source, target, src_axis, dst_axis) if len(calls) < PIECES else None
            if loops is None or len(loops) > LOOPS:
                return No("its two patterns are no loop nest of the copy kernel")
            loops = loops or [Axis(1, 1, 1)]
            slots = COPY(
                x=self.pointer("x", source),
                y=self.pointer("y", target),
                loops=len(loops),
                trips=[self.trips(a) for a in loops],
                x_steps=[a.source for a in loops],
                y_steps=[a.target for a in loops],
            )
            runs_on = [(a.source, a.target) for a in loops] == [(1, 1)]
            lines = Lines({"x": 1, "y": 1}, count="trips") if runs_on else None
            calls.append(KernelCall(kernel, slots, threads=self.many, lines=lines))
        return calls or No("its patterns do not pair up")

    def _pieces(self) -> Iterator[tuple[Pattern, Pattern]]:
        """Pairs of patterns of one size; a contiguous one is cut as the other side's patterns ask."""
        source, target = list(self.source), list(self.target)
        if len(source) == 1 and len(target) > 1 and source[0].contiguous:
            source = _shared_out(source[0].offset, target)
        elif len(target) == 1 and len(source) > 1 and target[0].contiguous:
            target = _shared_out(target[0].offset, source)
        if len(source) == len(target) and all(a.size == b.size for a, b in zip(source, target, strict=True)):
            yield from zip(source, target, strict=True)

    def _rows(self) -> list[KernelCall] | None:
        """Many equal contiguous rows read in turn, as a gather of ids known now; None for anything else."""
        first = self.source[0]
        if len(self.source) < 4 or not all(p.contiguous and p.sizes == first.sizes for p in self.source):
            return None
        row, low = first.size, min(p.offset for p in self.source)
        if any((p.offset - low) % row for p in self.source):
            return None
        ids = np.array([(p.offset - low) // row for p in self.source], np.int32)
        step = self._row_step(len(ids), row)
        if step is None or self.bindings.keys() & {"src_valid", "dst_valid"}:
            return None
        table = self.pointer("x", Pattern(low, (), ()))
        return [self._gathered(table, Constant(ids), len(ids), cols=row, table_rows=int(ids.max()) + 1, y_step=step)]

    def _gathered(self, table: Pointer, ids: Constant | str, count: int | Member, **sizes: int) -> KernelCall:
        """Rows of a table, picked by ids, into y."""
        slots = GATHER(x=table, ids=ids, y=self.pointer("y", self.target[0]), count=count, **sizes)
        return KernelCall(unit("move.h", "gather", *self.types), slots, threads=self.many)

    def _row_step(self, rows: int, row: int) -> int | None:
        """How far apart rows of y begin, where all of them are contiguous and evenly spread."""
        if len(self.target) != 1:
            return None
        if self.target[0].contiguous:
            return row
        loops = nest(Pattern.whole((rows, row)), self.target[0])
        if loops is not None and len(loops) == 2 and loops[0].size == rows and loops[1].target == 1:
            return loops[0].target
        return row if loops is not None and len(loops) == 1 and loops[0].target == 1 else None

    def gather(self) -> list[KernelCall] | No:
        row = self.source[0].size
        step = self._row_step(self.op.rows, row)
        if step is None:
            return No("the rows it writes are not contiguous and evenly spread")
        count = Member(self.bindings["src_valid"].expression) if "src_valid" in self.bindings else self.op.rows
        table = self.pointer("x", self.source[0])
        return [self._gathered(table, "ids", count, cols=row, table_rows=self.op.table_rows, y_step=step)]


def _shared_out(offset: int, other: list[Pattern]) -> list[Pattern]:
    """A contiguous run from `offset` on, cut into the sizes of the other side's patterns."""
    cut = []
    for pattern in other:
        cut.append(Pattern(offset, (pattern.size,), (1,)))
        offset += pattern.size
    return cut
