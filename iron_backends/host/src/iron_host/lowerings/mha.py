"""MHA on the host: kernel `attention<T, C>` of attention.h."""

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
from iron_host.kernels import ATTENTION, WHOLE
from iron_host.lowerings.sharing import Sharing
from iron_host.lowerings.units import FLOATS, GRAIN, cpp, takes, threads, unit
from iron_host.tiles import COLUMNS

# Of keys.h and attention.h: keys of a block and of a run, and what a head's numbers are padded to.
KEYS, RUN, LANES = 32, 64, 16
#: Of panels.h: rows that meet a panel at once, at most.
TALL = 12


class MHA(Sharing):
    """Heads and blocks of queries are shared among threads, for one query runs of keys; work is counted in multiplications.

    block: queries that pass the keys together. together: queries of so many heads meet keys at once, 0 for the usual number.
    ahead: for one query, how many blocks of keys ahead the next one is asked for.
    """

    operator = "iron_ops_aie.MHA"
    grain = Auto(32768)
    block = Auto(16, domain=Choices(lambda op: (16,) if op.seq_len == 1 else (8, 16, 32, 64)))
    together = Auto(0, domain=Choices((0, 1, 2, 3, 4, 6)))
    ahead = Auto(1, domain=Choices(lambda op: (0, 1, 2) if op.seq_len == 1 else (1,)))

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
    ) -> list[KernelCall]:
        heads, kv_heads, d = op.num_heads, op.num_KV_heads, op.d
        q_row, q_head = (heads * d, d) if op.heads_interleaved else (d, op.seq_len * d)
        kv_row, kv_head = (kv_heads * d, d) if op.kv_interleaved else (d, op.kv_len * d)
        group, padded = heads // kv_heads, -(-d // LANES) * LANES
        runs = -(-op.kv_len // RUN) + 1 if op.seq_len == 1 and "valid" not in bindings else 0
        sizes = dict(
            heads=heads,
            kv_heads=kv_heads,
            queries=self.count(op, bindings, "valid"),
            keys=self.count(op, bindings, "kv_valid"),
            d=d,
            q_row=q_row,
            q_head=q_head,
            kv_row=kv_row,
            kv_head=kv_head,
            bias_row=op.kv_len,
            bias_head=op.seq_len * op.kv_len,
            causal=int(op.causal),
            window=-1 if op.window is None else op.window,
            in_runs=int(runs > 0),
            block=tunables["block"],
            ahead=tunables["ahead"],
            scale=op.scale,
            soft_cap=op.soft_cap or 0.0,
        )
        if op.spanned or (op.seq_len > 1 and not op.causal and not op.biased):
            return self._whole(op, sizes, tunables)
        rows, shared = max(tunables["block"] * group, heads if runs else 0), 4 * runs * heads * (padded + 2)
        attend = KernelCall(
            unit("attention.h", "attention", cpp(op.T), cpp(op.C), *([str(tunables["together"])] if tunables["together"] else [])),
            ATTENTION(q="Q", k="K", v="V", o="O", **sizes, **({"bias": "bias"} if op.biased else {})),
            scratch_bytes=4 * (2 * KEYS * padded + rows * (3 * padded + 4)),
            shared_bytes=shared,
            **self.shared_by(tunables, 2 * heads * op.seq_len * op.kv_len * d),
        )
        if not runs:
            return [attend]
        join = KernelCall(
            unit("attention.h", "attention_join", cpp(op.T)),
            ATTENTION(o="O", **sizes),
            scratch_bytes=4 * padded,
            shared_bytes=shared,
            threads=threads(runs * heads * padded, 8 * GRAIN),
        )
        return [attend, join]

    def _whole(self, op: Any, sizes: Mapping[str, Any], tunables: Mapping[str, Any]) -> list[KernelCall]:
        """The calls of attention that needs nothing of GEMV's order: whole.h."""
        most = -(-op.kv_len // COLUMNS) * COLUMNS
        given = {name: number for name, number in sizes.items() if name in (*WHOLE.ints, *WHOLE.floats)}
        slots = WHOLE(q="Q", k="K", v="V", o="O", **given, keys_most=most, **({"spans": "spans"} if op.spanned else {}))
        shared = 4 * op.num_KV_heads * most * (op.d + -(-op.d // COLUMNS) * COLUMNS)
        types, work = (cpp(op.T), cpp(op.C)), op.num_heads * op.seq_len * op.kv_len * op.d
        keys = KernelCall(
            unit("whole.h", "whole_keys", *types),
            slots,
            shared_bytes=shared,
            **self.shared_by(tunables, 2 * op.num_KV_heads * op.kv_len * op.d),
        )
        attend = KernelCall(
            unit("whole.h", "whole_attention", *types),
            slots,
            scratch_bytes=4 * TALL * (op.d + most + LANES),
            shared_bytes=shared,
            **self.shared_by(tunables, 2 * work),
        )
        return [keys, attend]
