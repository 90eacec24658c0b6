"""The array of rowwise operators: per lane a core, or a pipeline of cores, that a row at a time goes through.

How many rows is a word the sequence writes. What every row meets (a weight, a bias) comes down one stream per channel, is read by
the cores of all columns, and is acquired once per call.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from iron_core.bases.elementwise_array import TILE_CAP
from iron_core.declare.formats import bfloat16
from iron_core.declare.rules import require, require_channels, require_dtype, require_whole
from iron_core.declare.tilewise import rounded_tile
from iron_core.declare.undeclared import is_undeclared, undeclared
from iron_core.errors import DeclarationError

#: Rows are at most this long; those that meet a vector no longer than a line of the elementwise kernels.
ROW_CAP = 8192


class RowwiseArray:
    """What a `Rowwise` operator is on an array. Its subclass gives `kernel()`."""

    #: What its kernels compute on.
    array_dtype: ClassVar[Any] = bfloat16
    #: Rows are whole vectors of this many numbers.
    row_unit: ClassVar[int] = 16

    @undeclared
    def kernel(self: Any) -> Any:
        """The `Kernel` of one row: x's tile, the vectors', y's. A subclass with one has an array."""
        raise DeclarationError(f"{type(self).__name__} declares no kernel(); it runs on the CPU.")

    @property
    def vectors(self: Any) -> tuple[str, ...]:
        """Names of the inputs that every row meets."""
        return tuple(o.name for o in type(self).inputs if o.replicate and o.present(self))

    def stages(self: Any) -> tuple[tuple[Any, tuple[str, ...]], ...]:
        """Per core of a lane, in order: its kernel and the vectors it reads. The row between two of them is of y's type."""
        return ((self.kernel(), self.vectors),)

    @property
    def row_cap(self: Any) -> int:
        """Numbers of the longest row that a core takes."""
        return TILE_CAP if self.vectors else ROW_CAP

    def _widest(self: Any, dev: Any, channels: int) -> int:
        """Columns that a device has shim channels and cores for."""
        filled = dev.columns * dev.shim.channels // channels - len(self.vectors)
        return min(dev.columns, filled, dev.cores // (len(self.stages()) * channels))

    def resolve(self: Any, dev: Any) -> Any:
        channels = self.num_channels or 1
        # A device without an array says nothing of columns, nor does an operator without one.
        arrays = dev is not None and dev.is_npu and not is_undeclared(type(self).kernel)
        widest = self._widest(dev, channels) if arrays else 1
        fits = (c for c in range(widest, 0, -1) if self.rows % (c * channels) == 0)
        return self.evolve(num_channels=channels, num_aie_columns=self.num_aie_columns or next(fits, 1))

    def compatible(self: Any, dev: Any) -> None:
        if is_undeclared(type(self).kernel):
            return
        name, columns, channels = type(self).__name__, self.num_aie_columns, self.num_channels
        typed = [o.dtype.name for o in type(self).inputs if o.present(self) and hasattr(o.dtype, "name") and o.dtype.name in self.fields]
        require_dtype(self, self.array_dtype, *dict.fromkeys(typed))
        cap = self.row_cap
        require(self.cols <= cap, f"{name}: cols={self.cols}; a core takes rows of at most {cap} numbers. Legal: cols={cap}.")
        require_whole(self, "cols", self.row_unit, "vectors")
        require_channels(self)
        if dev is not None and dev.is_npu:
            widest, streams, cores = self._widest(dev, channels), 1 + len(self.vectors), len(self.stages())
            require(
                widest >= 1,
                f"{name}: num_channels={channels} of {streams} streams and {cores} cores each; {dev} has "
                f"{dev.columns * dev.shim.channels} and {dev.cores}. "
                f"Legal: {'num_channels=1' if self._widest(dev, 1) >= 1 else 'a device of more columns'}.",
            )
            require(
                columns <= widest,
                f"{name}: num_aie_columns={columns} with num_channels={channels}; {dev} has channels and cores for {widest}. "
                f"Legal: num_aie_columns={widest}.",
            )
        what = f"rows of num_aie_columns={columns} x num_channels={channels} lanes"
        require_whole(self, "rows", columns * channels, what, "give num_aie_columns=1" if columns > 1 else "")

    def array(self: Any, target: Any) -> None:
        # Here: what runs on the CPU alone needs no vocabulary of arrays.
        from iron_core.array import Kernel, ObjectFifo, Worker, range_

        def core(rows: Any, vectors: Any, out: Any, kernel: Any, count: Any) -> None:
            held = [vector.acquire() for vector in vectors]
            for _ in range_(count):
                kernel(rows.acquire(), *held, out.acquire())
                rows.release()
                out.release()
            for vector in vectors:
                vector.release()

        channels, stages = self.num_channels, self.stages()
        for kernel, _ in stages:
            if not isinstance(kernel, Kernel):
                name = type(self).__name__
                raise DeclarationError(f"{name}.kernel() gives {kernel!r}; legal: a Kernel, as Kernel.inline(...) makes one.")
        depth = target.fifo_depth(self.x.tile.nbytes + self.y.tile.nbytes, 1)
        shared = {}
        for name in self.vectors:
            vector = getattr(self, name)
            for channel in range(channels):
                shared[name, channel] = fifo = ObjectFifo(vector.tile, depth=vector.depth, name=f"{name}{channel}")
                fifo.prod(tile=vector.lane(channel))
        for lane in range(self.num_aie_columns * channels):
            fifo = ObjectFifo(self.x.tile, depth=depth, name=f"x{lane}")
            fifo.prod(tile=self.x.lane(lane))
            for number, (kernel, names) in enumerate(stages, 1):
                rows = fifo.cons()
                last = number == len(stages)
                fifo = ObjectFifo(self.y.tile, depth=depth, name=f"y{lane}" if last else f"row{lane}_{number}")
                ends = [shared[name, lane % channels].cons() for name in names]
                name = f"core{lane}" if len(stages) == 1 else f"core{lane}_{number}"
                Worker(core, [rows, ends, fifo.prod(), kernel], values=[self.count], name=name)
            fifo.cons(tile=self.y.lane(lane))

    def composed(self: Any, *inputs: Any) -> Any:
        """Row by row through the stages, rounded behind each; a row does not depend on where it goes."""
        given = dict(zip((o.name for o in type(self).inputs), inputs, strict=False))
        made, stages, out = self.y.tile, self.stages(), []
        for row in np.asarray(given["x"]):
            for kernel, names in stages:
                row = rounded_tile(kernel, made.dtype, made.elements, row, *(given[name] for name in names)).reshape(-1)
            out.append(row)
        return np.array(out, made.dtype).reshape(self.shape("y"))
