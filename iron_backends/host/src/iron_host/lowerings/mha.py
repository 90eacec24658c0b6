"""MHA on the host: kernel `attention<T, C>` of attention.h."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from iron_core.backends.protocol import No, Yes
from iron_core.declare.field import Auto
from iron_core.image.plan import Binding, BufferRef
from iron_host.kernel_call import HostLowering, KernelCall
from iron_host.lowerings.units import FLOATS, cpp, takes, threads, unit

# Of attention.h: keys and queries of a block, and what a head's numbers are padded to.
KEYS, QUERIES, LANES = 32, 16, 16


class MHA(HostLowering):
    """Heads and blocks of queries are shared among threads; `grain`: multiplications per thread."""

    operator = "iron_ops_aie.MHA"
    grain = Auto(32768)

    def supports(self, op: Any, dev: str) -> Yes | No:
        return takes(op, "attention", T=FLOATS, C=FLOATS)

    def operations(self, op: Any, shapes: Mapping[str, tuple[int, ...]]) -> int:
        rows, seen = math.prod(shapes["Q"]) // (op.num_heads * op.d), math.prod(shapes["K"]) // (op.num_KV_heads * op.d)
        pairs = rows * seen - (rows * (rows - 1) // 2 if op.causal else 0)
        if op.window is not None:
            pairs = min(pairs, rows * (op.window + 1 if op.causal else 2 * op.window + 1))
        return 4 * op.num_heads * op.d * pairs

    def step(
        self, op: Any, operands: Mapping[str, BufferRef], bindings: Mapping[str, Binding], tunables: Mapping[str, Any]
    ) -> KernelCall:
        heads, kv_heads, d = op.num_heads, op.num_KV_heads, op.d
        q_strides = (heads * d, d) if op.heads_interleaved else (d, op.seq_len * d)
        kv_strides = (kv_heads * d, d) if op.kv_interleaved else (d, op.kv_len * d)
        group, padded = heads // kv_heads, -(-d // LANES) * LANES
        return KernelCall(
            unit("attention.h", "attention", cpp(op.T), cpp(op.C)),
            ("Q", "K", "V", "O"),
            (
                *(heads, kv_heads, self.count(op, bindings, "valid"), self.count(op, bindings, "kv_valid"), d),
                *(*q_strides, *kv_strides, int(op.causal), -1 if op.window is None else op.window),
            ),
            (op.scale,),
            scratch_bytes=4 * (2 * KEYS * padded + QUERIES * group * (2 * padded + 2)),
            threads=threads(2 * heads * op.seq_len * op.kv_len * d, tunables["grain"]),
        )
