"""`QuantizeRows`: rows as int8, each with a scale of its own."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import Case, ObjectFifo, Out, Rowwise, Testing, Tolerance, Worker, range_, require
from iron_core.array.derive import derive
from iron_ops_aie.elementwise import kernels_quantize as kernels
from iron_ops_aie.rules import floats_only


class QuantizeRows(Rowwise):
    """y = x / found as int8, row by row, where `found` makes the largest number of a row 127; otherwise as `Quantize`.

    x: (rows, cols); y: the same, int8; found: float32 (rows,), what a product takes as its `row_scale`. Of a row of zeros, or with an
    infinity, all integers are 0. `valid` bounds the rows.

    The array (bfloat16): a core per lane finds a row's scale, then rounds the row. It has two outputs, as many as a column's shim
    takes, so there is one lane a column; and it takes all rows.

    Errors: ParamError for integers. Unresolvable where no array takes it.
    """

    y = Out(Rowwise.rows, Rowwise.cols, dtype=np.int8, tile=Rowwise.cols, per=(Rowwise.num_aie_columns, Rowwise.num_channels))
    found = Out(Rowwise.rows, dtype=np.float32, tile=1, per=(Rowwise.num_aie_columns, Rowwise.num_channels))

    test = Testing(
        Case(rows=1, cols=1024, lower=True),
        Case(rows=3, cols=1024, num_aie_columns=1, lower=True),
        Case(rows=24, cols=64, lower=True),
        Case(rows=48, cols=256, num_aie_columns=3, lower=True),
        Case(rows=7, cols=577, T=np.float32),
        Case(rows=24, cols=60, bounds=dict(valid=7), T=np.float32),
        draw=dict(centered=("x",)),
    )

    def validate(self) -> None:
        floats_only(self, "T")

    def reference(self, x: Any) -> Any:
        found = kernels.measured(x, -1)
        return kernels.rounded(x, kernels.inverse(found)[:, None]), found

    def tolerance(self) -> Tolerance:
        return Tolerance(exact=True)

    def kernel(self) -> Any:
        return kernels.row(self.cols)

    def compatible(self, dev: Any) -> None:
        super().compatible(dev)
        require(
            self.num_channels == 1,
            f"QuantizeRows: num_channels={self.num_channels}; a column's two outputs are y and found. Legal: num_channels=1.",
        )

    def array(self, target: Any) -> None:
        def core(rows: Any, out: Any, found: Any, kernel: Any, count: Any) -> None:
            for _ in range_(count):
                kernel(rows.acquire(), out.acquire(), found.acquire())
                rows.release()
                out.release()
                found.release()

        depth = target.fifo_depth(self.x.tile.nbytes + self.y.tile.nbytes, 1)
        for lane in range(self.num_aie_columns):
            rows = ObjectFifo(self.x.tile, depth=depth, name=f"x{lane}")
            rows.prod(tile=self.x.lane(lane))
            out = ObjectFifo(self.y.tile, depth=depth, name=f"y{lane}")
            out.cons(tile=self.y.lane(lane))
            found = ObjectFifo(self.found.tile, depth=depth, name=f"found{lane}")
            found.cons(tile=self.found.lane(lane))
            Worker(core, [rows.cons(), out.prod(), found.prod(), self.kernel()], values=[self.count], name=f"core{lane}")

    def sequence(self, rt: Any) -> None:
        why = "QuantizeRows: valid= bounds the rows per call, and no transfer counts single numbers. Legal: all rows."
        require("valid" not in rt.bound, why)
        derive(self, rt)

    def composed(self, x: Any) -> Any:
        """What it computes is exact in float32, however it is cut."""
        return self.reference(x)
