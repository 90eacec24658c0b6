"""The array of `RoPE`: a core per column, which holds an angle row while it turns the rows of that position.

A lane's angle rows and rows belong together: contiguous shares, or, where calls bound the rows, a position at a time in turn.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import ObjectFifo, Pattern, Worker, bfloat16, nearest, range_, require, require_columns, require_dtype, require_whole
from iron_core.declare.tilewise import rounded_tile
from iron_ops_aie.rowwise import kernels

#: Rows are whole multiples of so many numbers: a half is whole vectors of 16.
UNIT = 32
#: Numbers of the longest row: twice three of them fit a core.
CAP = 4096


class RoPEArray:
    """How a `RoPE` is computed on an array."""

    def kernel(self: Any) -> Any:
        """The `Kernel` of one row and its angles."""
        return kernels.rope(self.cols, halves=self.method_type == 0)

    def resolve(self: Any, dev: Any) -> Any:
        widest = dev.columns if dev is not None and dev.is_npu else 1
        fits = (c for c in range(widest, 0, -1) if self.angle_rows % c == 0)
        return self.evolve(num_aie_columns=self.num_aie_columns or next(fits))

    def compatible(self: Any, dev: Any) -> None:
        columns = self.num_aie_columns
        require_dtype(self, bfloat16, "T", "A")
        require(self.cols <= CAP, f"RoPE: cols={self.cols}; a core takes rows of at most {CAP} numbers. Legal: cols={CAP}.")
        require_whole(self, "cols", UNIT, "vectors of both halves")
        require_columns(self, dev)
        require(
            self.angle_rows % columns == 0,
            f"RoPE: num_aie_columns={columns} do not share out angle_rows={self.angle_rows}. "
            f"Nearest legal num_aie_columns: {nearest(columns, [c for c in range(1, columns) if self.angle_rows % c == 0])}.",
        )

    def array(self: Any, target: Any) -> None:
        def core(rows: Any, angles: Any, out: Any, kernel: Any, turns: Any, each: Any) -> None:
            for _ in range_(turns):
                angle = angles.acquire()
                for _ in range_(each):
                    kernel(rows.acquire(), angle, out.acquire())
                    rows.release()
                    out.release()
                angles.release()

        for lane in range(self.num_aie_columns):
            fifos = {name: ObjectFifo(getattr(self, name).tile, name=f"{name}{lane}") for name in ("x", "angles", "y")}
            fifos["x"].prod(tile=self.x.lane(lane))
            fifos["angles"].prod(tile=self.angles.lane(lane))
            fifos["y"].cons(tile=self.y.lane(lane))
            ends = [fifos["x"].cons(), fifos["angles"].cons(), fifos["y"].prod(), self.kernel()]
            Worker(core, ends, values=[self.turns, self.each], name=f"core{lane}")

    def sequence(self: Any, rt: Any) -> None:
        rt.preamble()
        lanes, positions = self.num_aie_columns, self.angle_rows // self.num_aie_columns
        count = rt.length("turns")
        for way, name, size in (("drain", "y", self.rows_per_angle), ("fill", "x", self.rows_per_angle), ("fill", "angles", 1)):
            one = size * self.cols
            for lane in range(lanes):
                if count is None:
                    where = Pattern.whole((positions * one,), lane * positions * one)
                else:
                    where = Pattern(lane * one, (positions, one), (lanes * one, 1))
                rt.transfer(way, name, lane, where, wait=way == "drain", size_by=count and (0, count))

    def composed(self: Any, x: Any, angles: Any) -> Any:
        """Row by row, each by the angle row of its position."""
        kernel = self.kernel()
        rows = [rounded_tile(kernel, self.T, self.cols, row, angles[i // self.rows_per_angle]) for i, row in enumerate(x)]
        return np.array(rows, self.T).reshape(x.shape)
