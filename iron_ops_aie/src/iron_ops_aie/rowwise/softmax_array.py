"""The array of `Softmax`: a core per lane, which computes the span of a row that counts and leaves the rest zero."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import ObjectFifo, Worker, if_, range_, require_whole, widen
from iron_core.declare.tilewise import rounded_tile
from iron_ops_aie.products.kernels_mm import zero
from iron_ops_aie.rowwise import kernels

#: Numbers that the kernel computes at once.
VECTOR = 32
#: Rows come in whole blocks of so many.
ROWS = 16


def span(counted: Any) -> Any:
    """Numbers of a row that are computed: those that count, up to whole vectors."""
    return (counted + (VECTOR - 1)) // VECTOR * VECTOR


class SoftmaxArray:
    """How a `Softmax` is computed on an array."""

    row_unit = VECTOR

    def kernel(self: Any) -> Any:
        """The `Kernel` of a row's span."""
        return kernels.softmax(self.cols)

    def compatible(self: Any, dev: Any) -> None:
        require_whole(self, "rows", ROWS, "blocks of rows")
        super().compatible(dev)  # type: ignore[misc]

    def array(self: Any, target: Any) -> None:
        def core(rows: Any, out: Any, clear: Any, mask: Any, kernel: Any, count: Any, counted: Any) -> None:
            last = span(counted)
            for _ in range_(count):
                x, y = rows.acquire(), out.acquire()
                clear(y)
                with if_(counted > 0):
                    mask(x, counted, last)
                    kernel(x, y, last)
                rows.release()
                out.release()

        depth = target.fifo_depth(self.x.tile.nbytes + self.y.tile.nbytes, 1)
        for lane in range(self.num_aie_columns * self.num_channels):
            rows = ObjectFifo(self.x.tile, depth=depth, name=f"x{lane}")
            rows.prod(tile=self.x.lane(lane))
            out = ObjectFifo(self.y.tile, depth=depth, name=f"y{lane}")
            out.cons(tile=self.y.lane(lane))
            called = [zero(self.cols, self.T), kernels.mask(self.cols), self.kernel()]
            Worker(core, [rows.cons(), out.prod(), *called], values=[self.count, self.counted], name=f"core{lane}")

    def composed(self: Any, x: Any) -> Any:
        """Row by row: its span, masked, in a row of zeros."""
        mask, kernel, counted = kernels.mask(self.cols), self.kernel(), self.vector_size
        made = np.zeros(x.shape, self.T)
        if counted:
            for row, out in zip(np.asarray(x), made, strict=True):
                hidden = rounded_tile(mask, self.T, self.cols, row, counted, span(counted))
                out[:] = rounded_tile(kernel, self.T, self.cols, hidden, out, span(counted))
        return made

    def array_error(self: Any, x: Any) -> Any:
        """What log2 e in bfloat16 does to an exponential, and to the sum of them; and four roundings: of both, of one over the sum,
        of the quotient."""
        wide, y = widen(x), self.reference(x)
        below = wide[:, : self.vector_size].max(-1, keepdims=True) - wide
        share = np.where(y > 0, below, 0)
        off = abs(kernels.LOG2E * np.log(2) - 1) * (share + (y * share).sum(-1, keepdims=True))
        return y * np.expm1(off + 4 * 2.0**-8) + kernels.SMALLEST
