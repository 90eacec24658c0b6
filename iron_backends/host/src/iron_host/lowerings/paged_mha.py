"""PagedMHA on the host: kernel `paged_attention<T, C>` of paged.h."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from iron_core.declare.domain import Choices
from iron_core.declare.field import Auto
from iron_core.graph.traced import Binding
from iron_core.image.plan import BufferRef
from iron_core.lowering.answer import No, Yes
from iron_host.kernel_call import KernelCall
from iron_host.kernels import PAGED
from iron_host.lowerings.mha import KEYS, LANES, RUN
from iron_host.lowerings.sharing import Sharing
from iron_host.lowerings.units import FLOATS, GRAIN, cpp, takes, threads, unit

#: Of paged.h: rows that are shared out run by run, at most.
SPLIT = 8


class PagedMHA(Sharing):
    """Blocks of a sequence's rows and runs of keys are shared among threads; work is counted in multiplications.

    block: rows that pass the keys together. ahead: for a row alone, how many blocks of keys ahead the next one is asked for.
    """

    operator = "iron_ops_aie.PagedMHA"
    grain = Auto(32768)
    block = Auto(16, domain=Choices((8, 16, 32, 64)))
    ahead = Auto(1, domain=Choices((0, 1, 2)))

    def supports(self, op: Any, dev: str) -> Yes | No:
        return takes(op, "paged_attention", T=FLOATS, C=FLOATS)

    def operations(self, op: Any, shapes: Mapping[str, tuple[int, ...]]) -> int:
        return 4 * math.prod(shapes["q"]) * int(op.longest if op.window is None else min(op.longest, op.window + 1))

    def step(
        self, op: Any, operands: Mapping[str, BufferRef], bindings: Mapping[str, Binding], tunables: Mapping[str, Any]
    ) -> list[KernelCall]:
        heads, d, block = op.num_heads, op.d, tunables["block"]
        padded, runs = -(-d // LANES) * LANES, op.longest // RUN
        sizes = dict(
            rows=self.count(op, bindings, "valid"),
            heads=heads,
            kv_heads=op.num_KV_heads,
            d=d,
            pages=op.pages,
            page=op.page,
            sequences=op.sequences,
            most=op.most,
            window=-1 if op.window is None else op.window,
            block=block,
            ahead=tunables["ahead"],
            scale=op.scale,
            soft_cap=op.soft_cap or 0.0,
        )
        slots = PAGED(q="q", k="k", v="v", tables="tables", owner="owner", at="at", o="o", **sizes)
        rows, kept = max(block * (heads // op.num_KV_heads), heads), min(op.rows, SPLIT)
        shared = 4 * kept * runs * heads * (padded + 2)
        attend = KernelCall(
            unit("paged.h", "paged_attention", cpp(op.T), cpp(op.C)),
            slots,
            scratch_bytes=4 * (2 * KEYS * padded + rows * (3 * padded + 4)),
            shared_bytes=shared,
            **self.shared_by(tunables, 2 * heads * op.rows * op.longest * d),
        )
        join = KernelCall(
            unit("paged.h", "paged_join", cpp(op.T)),
            slots,
            scratch_bytes=4 * padded,
            shared_bytes=shared,
            threads=threads(kept * runs * heads * padded, 8 * GRAIN),
        )
        return [attend, join]
