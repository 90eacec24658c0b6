"""GatedExperts on the host: `picked_rows` or `picked_blocks` of experts.h, two matrices at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from iron_core.graph.traced import Binding
from iron_core.image.plan import BufferRef
from iron_host.kernel_call import KernelCall
from iron_host.kernels import PICKED
from iron_host.lowerings.picked import PickedLowering
from iron_host.lowerings.units import cpp


class GatedExperts(PickedLowering):
    """Rows of the matrices are shared among threads."""

    operator = "iron_ops_aie.GatedExperts"
    stacks = ("gate", "up")

    def operations(self, op: Any, shapes: Mapping[str, tuple[int, ...]]) -> int:
        return 4 * math.prod(shapes["y"]) * int(op.hidden)

    def step(
        self, op: Any, operands: Mapping[str, BufferRef], bindings: Mapping[str, Binding], tunables: Mapping[str, Any]
    ) -> list[KernelCall]:
        size, pairs, count = (op.inner, op.hidden, op.experts), op.rows * op.k, self.count(op, bindings, "valid")
        before, shared = self.rounding(op, "x", op.rows, count, op.hidden)
        slots = PICKED(
            x="x", w=self.weights(op, "gate", size), up=self.weights(op, "up", size), ids="ids", y="y", rows=count, k=op.k,
            experts=op.experts, M=op.inner, N=op.inner, K=op.hidden, w_in_tiles=0, up_in_tiles=0, y_row=op.inner, y_column=1,
            ahead=tunables["ahead"],
        )  # fmt: skip
        work = 2 * pairs * op.inner * op.hidden
        kernel = self.kernel(op, "picked", cpp(op.O), "true")
        return [*before, self.call(kernel, slots, 2 * self.widened(op, op.hidden), pairs, op.experts, work, tunables, **shared)]
