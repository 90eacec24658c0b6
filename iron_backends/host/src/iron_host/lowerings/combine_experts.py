"""CombineExperts on the host: `combined_rows` or `combined_blocks` of experts.h."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from iron_core.graph.traced import Binding
from iron_core.image.plan import BufferRef
from iron_host.kernel_call import KernelCall
from iron_host.kernels import COMBINED
from iron_host.lowerings.picked import BESIDE_ROWS, PickedLowering
from iron_host.lowerings.products import in_blocks
from iron_host.lowerings.units import cpp
from iron_host.tiles import ROWS as TILE_ROWS
from iron_host.tiles import TILES

#: Of experts.h: floats in which the sums of tiles that are combined together are kept, unless those of two are more.
SUMS = 1 << 18


class CombineExperts(PickedLowering):
    """Columns of the result are shared among threads."""

    operator = "iron_ops_aie.CombineExperts"
    stacks = ("down",)

    def operations(self, op: Any, shapes: Mapping[str, tuple[int, ...]]) -> int:
        return 2 * math.prod(shapes["y"]) * int(op.k * op.inner)

    def step(
        self, op: Any, operands: Mapping[str, BufferRef], bindings: Mapping[str, Binding], tunables: Mapping[str, Any]
    ) -> list[KernelCall]:
        pairs, size = op.rows * op.k, (op.hidden, op.inner, op.experts)
        before, shared = self.rounding(op, "x", pairs, self.count(op, bindings, "valid", op.k), op.inner)
        optional = {slot: name for slot, name in (("common", "shared"), ("common_gate", "shared_gate")) if name in operands}
        slots = COMBINED(
            x="x", w=self.weights(op, "down", size), ids="ids", weights="weights", **optional, y="y",
            rows=self.count(op, bindings, "valid"), k=op.k, experts=op.experts, N=op.hidden, K=op.inner, w_in_tiles=0,
            ahead=tunables["ahead"],
        )  # fmt: skip
        every = -(-op.hidden // TILE_ROWS) * TILE_ROWS * pairs
        sums = max(min(SUMS, every), TILES * TILE_ROWS * pairs) if in_blocks(op) else BESIDE_ROWS * pairs
        work = pairs * op.inner * op.hidden
        scratch = max(TILES * self.widened(op, op.inner), 4 * BESIDE_ROWS * op.inner) + 4 * sums
        kernel = self.kernel(op, "combined", cpp(op.O))
        return [*before, self.call(kernel, slots, scratch, pairs, op.experts, work, tunables, **shared)]
