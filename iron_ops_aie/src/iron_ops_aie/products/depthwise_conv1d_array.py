"""The array of `DepthwiseConv1d`: a core per column, each with a run of rows of its own.

A core's input fifo is the window: it holds five rows, makes one and lets the oldest go. A run but the first is sent from four
rows before it, so cores need nothing of one another; the first begins with rows of zeros that its core keeps.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import (
    Buffer,
    ObjectFifo,
    Pattern,
    Worker,
    bfloat16,
    nearest,
    range_,
    require,
    require_columns,
    require_dtype,
    require_npu,
    round_to,
)
from iron_core.array.fit import require_memory
from iron_ops_aie.products.kernels_conv import TAPS, VECTOR, depthwise_row

#: Rows before the one that is made.
BEFORE = TAPS - 1


class DepthwiseConv1dArray:
    """How a `DepthwiseConv1d` is computed on an array."""

    def kernel(self: Any, arch: str = "aie2p") -> Any:
        """The `Kernel` of one row of y."""
        return depthwise_row(self.channels, arch)

    def resolve(self: Any, dev: Any) -> Any:
        """As many columns as share out the rows, each at least as many as a window has before its last."""
        require_npu(self, dev)
        fits = (c for c in range(dev.columns, 0, -1) if self.rows % c == 0 and self.rows // c >= BEFORE)
        return self.evolve(num_aie_columns=self.num_aie_columns or next(fits, 1))

    def compatible(self: Any, dev: Any) -> None:
        rows, columns = self.rows, self.num_aie_columns
        require_dtype(self, bfloat16, "T", "W")
        require(self.taps == TAPS, f"DepthwiseConv1d: taps={self.taps}; the array's kernel sums over {TAPS} rows. Legal: taps={TAPS}.")
        require(
            self.channels % VECTOR == 0,
            f"DepthwiseConv1d: channels={self.channels} are no whole vectors of {VECTOR}. Nearest legal: "
            f"channels={nearest(self.channels, VECTOR)}.",
        )
        require(rows >= BEFORE, f"DepthwiseConv1d: rows={rows}; a core makes at least {BEFORE}. Legal: rows={BEFORE}.")
        require_columns(self, dev)
        legal = [c for c in range(1, (rows if dev is None else dev.columns) + 1) if rows % c == 0 and rows // c >= BEFORE]
        require(
            columns in legal,
            f"DepthwiseConv1d: num_aie_columns={columns} do not share out rows={rows} in runs of {BEFORE} or more. Nearest legal: "
            f"num_aie_columns={nearest(columns, legal)}.",
        )
        if dev is not None:
            require_memory(self, dev, "Legal: fewer channels.")

    def array(self: Any, target: Any) -> None:
        def core(rows: Any, weights: Any, out: Any, kernel: Any, zeros: Any, limits: Any, count: Any) -> None:
            taps = weights.acquire(TAPS)

            def row(window: Any) -> None:
                kernel(*taps, *window, out.acquire(), *limits)
                out.release()

            if zeros is None:
                rows.acquire(BEFORE)
            else:
                for held in range(1, TAPS):
                    window = rows.acquire(held)
                    row([zeros] * (TAPS - held) + (window if held > 1 else [window]))
                count = count - BEFORE
            for _ in range_(count):
                row(rows.acquire(TAPS))
                rows.release()
            rows.release(BEFORE)
            weights.release(TAPS)

        weight = ObjectFifo(self.weight.tile, depth=self.weight.depth, name="weight")
        weight.prod(tile=self.weight.lane(0))
        kernel = self.kernel(target.dev.arch)
        for lane in range(self.num_aie_columns):
            rows, out = ObjectFifo(self.x.tile, depth=self.x.depth, name=f"x{lane}"), ObjectFifo(self.y.tile, name=f"y{lane}")
            rows.prod(tile=self.x.lane(lane))
            out.cons(tile=self.y.lane(lane))
            zeros = None if lane else Buffer(self.channels, bfloat16, name="zeros", initial_value=(0.0,) * self.channels)
            limits = [Buffer(1, np.float32, name=f"{end}{lane}", initial_value=(0.0,)) for end in ("low", "high")]
            args = [rows.cons(), weight.cons(), out.prod(), kernel, zeros, limits]
            Worker(core, args, values=[self.steps], name=f"core{lane}")

    def sequence(self: Any, rt: Any) -> None:
        """The weights to all cores, every core's rows and the four before them. A call's bound leaves the rows of y that it has
        as they are, for none depends on a later row of x; so all are made."""
        rt.preamble()
        wide, run = self.channels, self.rows // self.num_aie_columns
        for lane in range(self.num_aie_columns):
            rt.drain("y", lane, Pattern.whole((run * wide,), lane * run * wide), wait=True)
        rt.fill("weight", 0, Pattern.whole((TAPS * wide,)))
        for lane in range(self.num_aie_columns):
            first = max(0, lane * run - BEFORE)
            rt.fill("x", lane, Pattern.whole((((lane + 1) * run - first) * wide,), first * wide))

    def composed(self: Any, x: Any, weight: Any) -> np.ndarray:
        """Row by row by the kernel's reference, over the rows before the first as well."""
        kernel = self.kernel()
        padded = np.concatenate([np.zeros((BEFORE, self.channels), self.T), np.asarray(x)])
        limits = np.zeros((2, 1), np.float32)
        rows = [kernel.reference(*weight, *padded[at : at + TAPS], *limits) for at in range(len(x))]
        return round_to(np.stack(rows), self.T) if rows else np.empty((0, self.channels), self.T)
