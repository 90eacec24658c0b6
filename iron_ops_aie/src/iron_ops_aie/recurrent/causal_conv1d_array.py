"""The array of `CausalConv1d`: a core per column, each with channels of its own.

A core's input fifo is the window: what came before the call's rows comes down it first, the rows behind that; a core makes one and
lets the oldest go. At the end the window holds what the next call needs, which goes out behind the rows that were made.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import (
    In,
    Kernel,
    KernelContract,
    ObjectFifo,
    ObjectType,
    Out,
    Param,
    Pattern,
    Tolerance,
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
from iron_core.array.numbers import BFLOAT16, float32
from iron_ops_aie.rules import divisors

#: Rows that one call of the kernel sums over, and those of them before the one that is made.
TAPS = 4
BEFORE = TAPS - 1
#: Bytes that a transfer of as many rows as a call says counts in.
COUNTED = 16

_ROW = (
    BFLOAT16
    + """
extern "C" void KERNEL(const uint16_t *w0, const uint16_t *w1, const uint16_t *w2, const uint16_t *w3, const uint16_t *x0,
                       const uint16_t *x1, const uint16_t *x2, const uint16_t *x3, uint16_t *y, int32_t row, int32_t past) {
  const uint16_t *w[4] = {w0, w1, w2, w3}, *x[4] = {x0, x1, x2, x3};
  int32_t first = past || row > 3 ? 0 : 3 - row;
  for (int32_t i = 0; i < WIDTH; i++) {
    float sum = 0;
    for (int32_t j = first; j < 4; j++)
      sum = sum + widen(w[j][i]) * widen(x[j][i]);
    y[i] = narrow(sum);
  }
}
"""
)

_KEEP = """
#include <stdint.h>
extern "C" void KERNEL(const uint16_t *x, uint16_t *y, int32_t row, int32_t past) {
  for (int32_t i = 0; i < WIDTH; i++)
    y[i] = past || row >= 0 ? x[i] : 0;
}
"""


def conv_row(width: int) -> Kernel:
    """y = w0 x0 + ... + w3 x3 of rows of `width` bfloat16, float32 sums in this order, rounded once. row: its number among the
    call's; rows before number 0 count only where something is past."""

    def reference(*given: Any) -> np.ndarray:
        *rows, row, past = given
        wide = [float32(each) for each in rows]
        total = np.zeros(width, np.float32)
        for j in range(0 if past else max(0, BEFORE - int(row)), TAPS):
            total = total + wide[j] * wide[TAPS + j]  # the products are exact
        return total

    contract = KernelContract(roles=(*(In,) * 2 * TAPS, Out, Param, Param), reference=reference, ops=2 * TAPS * width)
    line = ObjectType.of(width, bfloat16)
    return Kernel.inline("causal_conv_row", _ROW, (*(line,) * (2 * TAPS + 1), np.int32, np.int32), contract, dict(WIDTH=width))


def keep_row(width: int) -> Kernel:
    """A row as it is; zeros for one before number 0 where nothing is past."""

    def reference(x: Any, row: int, past: int) -> np.ndarray:
        return float32(x) if past or int(row) >= 0 else np.zeros(width, np.float32)

    contract = KernelContract(roles=(In, Out, Param, Param), reference=reference, tolerance=Tolerance(exact=True))
    line = ObjectType.of(width, bfloat16)
    return Kernel.inline("keep_row", _KEEP, (line, line, np.int32, np.int32), contract, dict(WIDTH=width))


class CausalConv1dArray:
    """How a `CausalConv1d` is computed on an array."""

    def resolve(self: Any, dev: Any) -> Any:
        require_npu(self, dev)
        fits = [c for c in _columns(self) if c <= dev.columns]
        columns = self.num_aie_columns or max(fits, default=1)
        return self.evolve(num_aie_columns=columns, width=self.channels // columns)

    def compatible(self: Any, dev: Any) -> None:
        require_dtype(self, bfloat16, "T", "W")
        require(self.taps == TAPS, f"CausalConv1d: taps={self.taps}; the array's kernel sums over {TAPS} rows. Legal: taps={TAPS}.")
        legal = [c for c in _columns(self) if dev is None or c <= dev.columns]
        unit = COUNTED // 2
        require(
            legal,
            f"CausalConv1d: channels={self.channels} are no whole vectors of {unit}. Nearest legal: "
            f"channels={nearest(self.channels, unit)}.",
        )
        require_columns(self, dev)
        require(
            self.num_aie_columns in legal,
            f"CausalConv1d: num_aie_columns={self.num_aie_columns} do not share out channels={self.channels} in whole words. Nearest "
            f"legal: num_aie_columns={nearest(self.num_aie_columns, legal)}.",
        )
        if dev is not None:
            require_memory(self, dev, "Legal: fewer channels, or more columns.")

    def array(self: Any, target: Any) -> None:
        def core(rows: Any, weights: Any, out: Any, kernels: Any, count: Any, past: Any) -> None:
            make, keep = kernels
            taps = weights.acquire(TAPS)
            for row in range_(count):
                make(*taps, *rows.acquire(TAPS), out.acquire(), row, past)
                out.release()
                rows.release()
            window = rows.acquire(BEFORE)
            for at, held in enumerate(window):
                keep(held, out.acquire(), count + (at - BEFORE), past)
                out.release()
            rows.release(BEFORE)
            weights.release(TAPS)

        kernels = [conv_row(self.width), keep_row(self.width)]
        for lane in range(self.num_aie_columns):
            weight = ObjectFifo(self.weight.tile, depth=TAPS, name=f"weight{lane}")
            weight.prod(tile=self.weight.lane(lane))
            rows, out = ObjectFifo(self.x.tile, depth=TAPS + 1, name=f"x{lane}"), ObjectFifo(self.y.tile, name=f"y{lane}")
            rows.prod(tile=self.x.lane(lane))
            out.cons(tile=self.y.lane(lane))
            Worker(core, [rows.cons(), weight.cons(), out.prod(), kernels], values=[self.steps, self.begun], name=f"core{lane}")

    def sequence(self: Any, rt: Any) -> None:
        """Of every core: its rows and then what the next call needs leave it; its weights, what came before, and its rows go to it."""
        rt.preamble()
        wide, width = self.channels, self.width

        def part(lane: int, rows: int) -> Pattern:
            return Pattern(lane * width, (rows, width), (wide, 1))

        def sized(operand: str) -> dict[str, Any]:
            word = rt.tiles("valid", operand, 1)
            return {} if word is None else {"size_by": (0, word)}

        for lane in range(self.num_aie_columns):
            rt.drain("y", lane, part(lane, self.rows), wait=True, **sized("y"))
            rt.drain("state", lane, part(lane, BEFORE), via="y", wait=True)
        for lane in range(self.num_aie_columns):
            rt.fill("weight", lane, part(lane, TAPS))
            rt.fill("state", lane, part(lane, BEFORE), via="x")
            rt.fill("x", lane, part(lane, self.rows), **sized("x"))

    def composed(self: Any, x: Any, weight: Any, state: Any) -> Any:
        """Row by row by the kernels' references, over what came before as well; channels lie apart."""
        made, keep, past = conv_row(self.channels), keep_row(self.channels), int(self.past > 0)
        rows = np.concatenate([np.asarray(state), np.asarray(x)])
        n = len(rows) - BEFORE
        out = [made.reference(*weight, *rows[t : t + TAPS], t, past) for t in range(n)]
        left = [keep.reference(rows[n + at], n + at - BEFORE, past) for at in range(BEFORE)]
        y = round_to(np.stack(out), self.T) if out else np.empty((0, self.channels), self.T)
        return round_to(np.stack(left), self.T), y


def _columns(op: Any) -> list[int]:
    """Columns that share out the channels in whole vectors."""
    return [c for c in divisors(op.channels) if op.channels // c % (COUNTED // 2) == 0]
