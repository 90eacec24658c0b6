"""The array of the delta rule: a core per column; token after token, `width` columns of one head's state at a time.

Columns of a state do not meet, so cores share out heads, and columns of their states. A core reads such a part of the state, goes
through all tokens of the call in blocks, and writes the part back: once a call, whatever its rows. A head of 128 by 128 float32 is as
large as all of a core's memory; 32 of its columns are a quarter.

Two streams feed a core: one of the part of the state, then of the gates of a block; the other of its queries, keys and values. Two
leave it: what was read, and the state.
"""

from __future__ import annotations

import math
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
from iron_core.devices import WORD
from iron_ops_aie.recurrent import kernels_delta as kernels
from iron_ops_aie.rules import divisors

#: What a core keeps at most: numbers of a state and columns of it, numbers of a block's tokens, tokens of a block, gates of either kind.
HELD, WIDEST, STAGED, BLOCK, GATES = 4096, 128, 6144, 16, 1024
#: Numbers of an object that arrives.
OBJECT = 512


class DeltaRuleArray:
    """How a `DeltaRule` is computed on an array."""

    def resolve(self: Any, dev: Any) -> Any:
        require_npu(self, dev)
        deep, heads = self.key_dim, self.value_heads
        width = max((w for w in divisors(self.value_dim) if w % 2 == 0 and w <= WIDEST and deep * w <= HELD), default=1)
        most = max(1, min(BLOCK, GATES // heads, STAGED // (2 * deep + width)))
        block = max(b for b in divisors(self.rows) if b <= most)
        fits = [c for c in divisors(heads * self.value_dim // width) if c <= dev.columns]
        return self.evolve(
            num_aie_columns=self.num_aie_columns or max(fits),
            width=width,
            block=block,
            row=max(n for n in divisors(block * math.gcd(deep, width)) if n <= OBJECT),
            fed=max(n for n in divisors(math.gcd(block * heads, deep * width)) if n <= OBJECT),
        )

    def compatible(self: Any, dev: Any) -> None:
        name = type(self).__name__
        require_dtype(self, bfloat16, "T")
        for field in ("key_dim", "value_dim"):
            have = getattr(self, field)
            require(
                have % 2 == 0,
                f"{name}: {field}={have} of bfloat16 are no whole {WORD}-byte words. Nearest legal: {field}={nearest(have, 2)}.",
            )
        for field, most in (("key_dim", HELD // 2), ("value_heads", GATES)):
            have = getattr(self, field)
            require(have <= most, f"{name}: {field}={have}; a core has room for {most}. Nearest legal: {field}={most}.")
        require_columns(self, dev)
        parts = self.value_heads * self.value_dim // self.width
        legal = [c for c in divisors(parts) if dev is None or c <= dev.columns]
        require(
            self.num_aie_columns in legal,
            f"{name}: num_aie_columns={self.num_aie_columns} do not share out {parts} parts of the state, width={self.width} columns each. "
            f"Nearest legal: num_aie_columns={nearest(self.num_aie_columns, legal)}.",
        )

    def array(self: Any, target: Any) -> None:
        deep, width, block, heads = self.key_dim, self.width, self.block, self.value_heads
        slices, many, tokens = self.value_dim // width, deep * width, block * (2 * deep + width)
        parts = heads * slices // self.num_aie_columns
        row, fed = self.row, self.fed
        load, gate = kernels.put(fed, many, np.float32), kernels.put(fed, 2 * block * heads, np.float32)
        stage, store = kernels.put(row, tokens, bfloat16), kernels.take(width, many)
        step = kernels.step(block, deep, width, heads, self.scale)

        def core(wide: Any, narrow: Any, out: Any, left: Any, held: Any, first: Any, blocks: Any, count: Any, past: Any) -> None:
            state, gates, staged = held
            for part in range_(parts):
                for i in range_(many // fed):
                    # A sequence that begins finds zeros; a call of no rows leaves what there is.
                    load(wide.acquire(), state, i * fed, past + (count < 1))
                    wide.release()
                for b in range_(blocks):
                    for i in range_(2 * block * heads // fed):
                        gate(wide.acquire(), gates, i * fed, 1)
                        wide.release()
                    for i in range_(tokens // row):
                        stage(narrow.acquire(), staged, i * row, 1)
                        narrow.release()
                    for t in range_(block):
                        step(staged, gates, state, out.acquire(), t, (part + first) // slices, b * block + t < count)
                        out.release()
                for i in range_(deep):
                    store(state, left.acquire(), i * width)
                    left.release()

        for lane in range(self.num_aie_columns):
            wide, narrow = ObjectFifo(self.g.tile, name=f"g{lane}"), ObjectFifo(self.q.tile, name=f"q{lane}")
            out, left = ObjectFifo(self.o.tile, name=f"o{lane}"), ObjectFifo(self.state.tile, name=f"state{lane}")
            wide.prod(tile=self.g.lane(lane))
            narrow.prod(tile=self.q.lane(lane))
            out.cons(tile=self.o.lane(lane))
            left.cons(tile=self.state.lane(lane))
            held = [
                Buffer(size, np.float32, name=f"{name}{lane}")
                for name, size in (("held", many), ("gates", 2 * block * heads), ("tokens", tokens))
            ]
            ends = [wide.cons(), narrow.cons(), out.prod(), left.prod(), held, lane * parts]
            Worker(core, ends, values=[self.blocks, self.steps, self.begun], name=f"core{lane}")

    def sequence(self: Any, rt: Any) -> None:
        """Part by part: what leaves the cores, then the part of the state, then the blocks. All rows go to and fro, whatever bounds
        them: cores pass over those behind."""
        rt.preamble()
        deep, width, block, heads, dim = self.key_dim, self.width, self.block, self.value_heads, self.value_dim
        slices, keys = dim // width, self.key_heads
        parts = heads * slices // self.num_aie_columns

        def move(way: str, operand: str, lane: int, pattern: Pattern, via: str | None = None) -> None:
            rt.transfer(way, operand, lane, pattern, via=via, managed=False)

        for part in range(parts):
            for lane in range(self.num_aie_columns):
                head, at = divmod(lane * parts + part, slices)
                read = head % keys if self.tiled else head // (heads // keys)
                memory = Pattern(head * deep * dim + at * width, (deep, width), (dim, 1))
                move("drain", "o", lane, Pattern(head * dim + at * width, (self.rows, width), (heads * dim, 1)))
                move("drain", "state", lane, memory)
                move("fill", "state", lane, memory, via="g")
                for t in range(0, self.rows, block):
                    for name in ("g", "beta"):
                        move("fill", name, lane, Pattern(t * heads, (block * heads,), (1,)), via="g")
                    for name in ("q", "k"):
                        move("fill", name, lane, Pattern((t * keys + read) * deep, (block, deep), (keys * deep, 1)), via="q")
                    value = Pattern((t * heads + head) * dim + at * width, (block, width), (heads * dim, 1))
                    move("fill", "v", lane, value, via="q")

    def composed(self: Any, q: Any, k: Any, v: Any, g: Any, beta: Any, state: Any) -> Any:
        """Head by head, token by token; columns do not meet."""
        deep, heads, keys, dim, n = self.key_dim, self.value_heads, self.key_heads, self.value_dim, len(v)
        step = kernels.step(1, deep, dim, 1, self.scale)
        S, out = np.array(state, np.float32), np.empty((n, heads, dim), np.float32)
        if n and not self.past:
            S[...] = 0
        for h in range(heads):
            read = h % keys if self.tiled else h // (heads // keys)
            for t in range(n):
                tokens = np.concatenate([np.asarray(x).astype(np.float32) for x in (q[t, read], k[t, read], v[t, h])])
                made, out[t, h] = step.reference(tokens, np.array([g[t, h], beta[t, h]], np.float32), S[h].reshape(-1), 0, 0, 1)
                S[h] = made.reshape(deep, dim)
        return S, round_to(out, self.T)
