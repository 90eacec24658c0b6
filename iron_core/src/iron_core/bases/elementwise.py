"""`Elementwise`: what `UnaryElementwise` and `BinaryElementwise` share, and the array they run on.

One core per (column, channel). Each takes one line of every stream at a time, calls the kernel and passes the line on; how
many lines is a word the sequence writes.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from iron_core.declare.domain import Divisors, Width
from iron_core.declare.field import Auto, DType, Param
from iron_core.declare.formats import bfloat16
from iron_core.declare.operator import Operator
from iron_core.declare.rounding import round_to
from iron_core.declare.undeclared import undeclared
from iron_core.declare.value import Extent, Value
from iron_core.errors import DeclarationError, Unresolvable

#: Lines are whole vectors of this many numbers, and at most this long.
VECTOR = 16
TILE_CAP = 4096
TILE = 256


class Elementwise(Operator):
    """Streams of `size` numbers, each number computed from those at its own place. A subclass declares the operands."""

    elementwise: ClassVar[bool] = True

    size: int = Param()
    T: Any = DType(default=bfloat16)
    tile_size: int = Auto(domain=Divisors(of=lambda op: op.size, step=64, cap=TILE_CAP, span=3))
    num_aie_columns: int = Auto(domain=Width())
    num_channels: int = Auto(default=1)
    valid = Extent(size)
    count = Value(derive=lambda op: -(-op.valid // (op.num_aie_columns * op.num_channels * op.tile_size)))

    def ops(self) -> int:
        return self.size

    # -- the array ---------------------------------------------------------------------------------

    @undeclared
    def kernel(self) -> Any:
        """The `Kernel` of one line: the inputs' tiles, then the output's. A subclass with one has an array."""
        raise DeclarationError(f"{type(self).__name__} declares no kernel(); it runs on the CPU.")

    def _streams(self) -> int:
        """Input streams of one core."""
        return len(type(self).inputs)

    def resolve(self, dev: Any) -> Any:
        tile = self.tile_size or next((t for t in range(TILE, 0, -VECTOR) if self.size % t == 0), TILE)
        channels = self.num_channels or 1
        budget = 1  # a device without an array says nothing of columns
        if dev is not None and dev.is_npu:
            budget = max(1, min(dev.columns, dev.columns * dev.shim.channels // (self._streams() * channels)))
        fits = (c for c in range(budget, 0, -1) if self.size % (c * channels * tile) == 0)
        return self.evolve(
            tile_size=tile, num_channels=channels, num_aie_columns=self.num_aie_columns or next(fits, 1)
        )

    def compatible(self) -> None:
        name = type(self).__name__
        if self.T != bfloat16:
            raise Unresolvable(f"{name}: T={self.T}; its array's kernels compute in bfloat16. Legal: T=bfloat16.")
        if self.tile_size > TILE_CAP or self.tile_size % VECTOR:
            raise Unresolvable(f"{name}: tile_size={self.tile_size}; legal: multiples of {VECTOR} up to {TILE_CAP}.")
        if self.num_channels > 2:
            raise Unresolvable(f"{name}: num_channels={self.num_channels}; a column has 2 channels. Legal: 1, 2.")
        lines = self.num_aie_columns * self.num_channels * self.tile_size
        if self.size % lines:
            near = -(-self.size // lines) * lines
            raise Unresolvable(
                f"{name}: size={self.size} is not whole lines of tile_size={self.tile_size} over num_aie_columns="
                f"{self.num_aie_columns} x num_channels={self.num_channels}. Nearest legal size: {near}; or give tile_size= "
                "or num_aie_columns=."
            )

    def array(self, target: Any) -> None:
        from iron_core.array import Kernel, ObjectFifo, Worker, range_

        def core(inputs: Any, output: Any, kernel: Any, lines: Any) -> None:
            for _ in range_(lines):
                tiles = [end.acquire() for end in inputs]
                out = output.acquire()
                kernel(*tiles, out)
                for end in inputs:
                    end.release()
                output.release()

        kernel = self.kernel()
        if not isinstance(kernel, Kernel):
            raise DeclarationError(f"{type(self).__name__}.kernel() gives {kernel!r}; legal: a Kernel, as Kernel.inline(...) makes one.")
        for lane in range(self.num_aie_columns * self.num_channels):
            ends = []
            for operand in type(self).inputs:
                stream = getattr(self, operand.name)
                fifo = ObjectFifo(stream.tile, depth=stream.depth, name=f"{operand.name}{lane}")
                fifo.prod(tile=stream.lane(lane))
                ends.append(fifo.cons())
            (result,) = type(self).outputs
            stream = getattr(self, result.name)
            fifo = ObjectFifo(stream.tile, depth=stream.depth, name=f"{result.name}{lane}")
            fifo.cons(tile=stream.lane(lane))
            Worker(core, [ends, fifo.prod(), kernel], values=[self.count], name=f"core{lane}")

    def composed(self, *inputs: Any) -> Any:
        """Line by line through the kernel's tile reference; a line does not depend on where it is cut."""
        kernel = self.kernel()
        flat = [tensor.reshape(-1) for tensor in inputs]
        lines = math.prod(inputs[0].shape) // self.tile_size
        out = [
            round_to(kernel.reference(*(t[i * self.tile_size : (i + 1) * self.tile_size] for t in flat)), self.T)
            for i in range(lines)
        ]
        return np.concatenate(out).reshape(inputs[0].shape)


def stream() -> dict[str, Any]:
    """Keywords of an elementwise operand: its dtype, and a lane per core that carries one line at a time."""
    cls = Elementwise
    return dict(dtype=cls.T, tile=cls.tile_size, per=(cls.num_aie_columns, cls.num_channels))
