"""The array of `Repeat`: no cores. x goes through a memory tile `repeat` times over; each time it is written a row further on."""

from __future__ import annotations

from typing import Any

from iron_core import ObjectFifo, Pattern, nearest, require, require_npu
from iron_core.array.descriptors import BdLimits, plan
from iron_core.devices import ITERATIONS, LENGTH_UNIT, WORD
from iron_ops_aie.moving.copy_patterns import MANY, OBJECT_BYTES, legal_tiles


class RepeatArray:
    """How a `Repeat` is moved by an array."""

    def resolve(self: Any, dev: Any) -> Any:
        """A row at a time, or of a long one the largest part there may be."""
        require_npu(self, dev)
        return self.evolve(tile_size=self.tile_size or max(legal_tiles(self.cols, self.T.itemsize), default=self.cols))

    def compatible(self: Any, dev: Any) -> None:
        size, cols, words = self.T.itemsize, self.cols, WORD // self.T.itemsize
        legal = legal_tiles(cols, size)
        require(
            legal,
            f"Repeat: cols={cols} of {size} bytes; an array moves rows of whole {WORD}-byte words. Nearest legal: "
            f"cols={nearest(cols, words)}.",
        )
        require(
            self.tile_size in legal,
            f"Repeat: tile_size={self.tile_size} is no part of a row of cols={cols}; it must divide that, be whole {WORD}-byte words and "
            f"at most {OBJECT_BYTES} bytes. Nearest legal: tile_size={nearest(self.tile_size, legal)}.",
        )

    def array(self: Any, target: Any) -> None:
        into = ObjectFifo(self.x.tile, depth=self.x.depth, name="x0")
        into.prod(tile=self.x.lane(0))
        into.cons().forward(depth=self.y.depth, name="y0").cons(tile=self.y.lane(0))

    def sequence(self: Any, rt: Any) -> None:
        """Both sides in the order of what they carry, drains first; where calls bound the rows, one transfer each."""
        rt.preamble()
        limits = BdLimits.of(rt.dev.shim, self.T.itemsize)
        if "valid" in rt.bound:
            self._bounded()
        rows, cols, repeat = self.rows, self.cols, self.repeat
        tasks: list[Any] = []
        for order, (way, operand, step, each) in enumerate((("drain", "y", cols, repeat * cols), ("fill", "x", 0, cols))):
            where = Pattern(0, (repeat, rows, cols), (step, each, 1))
            count = rt.tiles("valid", operand, 1)
            if count is not None:
                rt.transfer(way, operand, 0, where, managed=False, size_by=(1, count))
                continue
            at = 0
            for descriptor in plan(where, limits, most=MANY):  # each is whole rows
                tasks.append((at, order, way, operand, descriptor))
                at += descriptor.size
        for _, _, way, operand, descriptor in sorted(tasks, key=lambda task: task[:2]):
            rt.transfer(way, operand, 0, (descriptor,), managed=False)

    def _bounded(self: Any) -> None:
        """Unresolvable where no descriptor could be shortened by a call."""
        cols, unit = self.cols, LENGTH_UNIT // self.T.itemsize
        require(
            cols % unit == 0,
            f"Repeat: cols={cols}; where calls bound the rows, a row is whole {LENGTH_UNIT} bytes. Nearest legal: "
            f"cols={nearest(cols, unit)}.",
        )
        require(
            self.repeat <= ITERATIONS,
            f"Repeat: repeat={self.repeat}; where calls bound the rows, a row is repeated at most {ITERATIONS} times. Legal: "
            f"repeat={ITERATIONS}.",
        )

    def composed(self: Any, x: Any) -> Any:
        """A mover computes nothing: what it moves is the reference."""
        return self.reference(x)
