"""`PagedMHA`: attention of rows of many sequences, whose keys and values lie in pages."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from iron_core import Case, DType, Extent, In, Operator, Out, Param, Testing, Tolerance, bfloat16, widen
from iron_core.errors import ParamError
from iron_ops_aie.attention.rules import check_scores
from iron_ops_aie.rules import floats_only

#: Keys of a run: a page is whole ones.
RUN = 64


class PagedMHA(Operator):
    """o[r] = softmax(scale * q[r] K^T) V, of the keys K and values V that row r sees: those of its sequence at 0 to its own position.

    q, o: (rows, num_heads, d), rows of any sequences in any order. k, v: (pages, page, num_KV_heads, d), a pool of pages,
    `page` tokens each; those of the rows' own tokens are written before. tables: int32 (sequences, most): page tables[s, i] holds
    tokens i * page up to (i + 1) * page of sequence s; sequences may share pages. owner: int32 (rows,): whose a row is. at: int32
    (rows,): its position. Every index counts from the end when negative and is clipped, as `Copy` takes ids. `window` w keeps the last w
    keys before a row's own, `soft_cap` c bends the scores s to c tanh(s / c), both as in `MHA`. Per call, `valid` bounds the rows.

    A row's result is, bit for bit, that of `MHA` for one query over those keys in a row, whatever rows run with it. k and v
    may be stored in another dtype (`C`) than q and o (`T`). On the CPU consecutive rows of one sequence at consecutive positions, as a
    prompt's are, pass its keys together.

    No array: by its reference and on the CPU.

    Errors: ParamError for pages that are no multiple of 64 tokens, heads that do not divide, a window below 1, a negative scale, a
    soft_cap that is not from 2^-100 to 2^100, integers.
    """

    rows: int = Param()
    num_heads: int = Param()
    num_KV_heads: int = Param(default=lambda op: op.num_heads)
    d: int = Param(default=64)
    pages: int = Param()
    page: int = Param(default=RUN)
    sequences: int = Param(default=1)
    most: int = Param(default=lambda op: op.pages)
    window: Any = Param(default=None)
    scale: float = Param(default=lambda op: 1 / math.sqrt(max(1, op.d)))
    soft_cap: Any = Param(default=None)
    T: Any = DType(default=bfloat16)
    C: Any = DType(default=lambda op: op.T)
    q = In(rows, num_heads, d, dtype=T)
    k = In(pages, page, num_KV_heads, d, dtype=C)
    v = In(pages, page, num_KV_heads, d, dtype=C)
    tables = In(sequences, most, dtype=np.int32)
    owner = In(rows, dtype=np.int32)
    at = In(rows, dtype=np.int32)
    o = Out(rows, num_heads, d, dtype=T)
    valid = Extent(rows)

    test = Testing(
        Case(rows=1, num_heads=2, pages=3),
        Case(rows=9, num_heads=6, num_KV_heads=2, d=32, pages=5, sequences=4, most=3, bounds=dict(valid=6)),
        Case(rows=9, num_heads=6, num_KV_heads=2, pages=5, sequences=4, most=3, T=np.float32),
        Case(rows=37, num_heads=9, num_KV_heads=3, pages=7, sequences=2, most=4, T=np.float32, C=np.float16),
        Case(rows=20, num_heads=4, num_KV_heads=1, d=40, pages=4, page=128, sequences=3, most=2, window=50, T=np.float32),
        Case(rows=5, num_heads=3, d=16, pages=6, sequences=3, most=5, soft_cap=0.5, scale=1.0, T=np.float32, C=bfloat16),
        Case(rows=8, num_heads=9, num_KV_heads=3, pages=128, sequences=8, most=16, T=np.float32, C=np.float16, bench=True),
        Case(rows=64, num_heads=9, num_KV_heads=3, pages=16, sequences=1, most=16, T=np.float32, C=np.float16, bench=True),
        draw=dict(
            normal=("q", "k", "v"),
            tables=lambda op, rng: rng.integers(-op.pages, op.pages + 1, (op.sequences, op.most)),
            owner=lambda op, rng: np.sort(rng.integers(0, op.sequences, op.rows)),
            at=lambda op, rng: (rng.integers(0, op.longest) + np.arange(op.rows)) % (op.longest + 1) - rng.integers(0, 2),
        ),
    )

    @property
    def longest(self) -> int:
        """Tokens that a sequence may have."""
        return self.most * self.page

    def validate(self) -> None:
        floats_only(self, "T", "C")
        check_scores(self)
        if self.page < RUN or self.page % RUN:
            raise ParamError(f"PagedMHA: page={self.page}; legal: a multiple of {RUN} tokens.")

    def _rows(self, q: Any, k: Any, v: Any, tables: Any, owner: Any, at: Any) -> Iterator[tuple[np.ndarray, ...]]:
        """Of each row, by KV head, float64: its queries (heads of the group, d), scaled scores, keys and values that it sees (n, d)."""
        pools = np.asarray(k), np.asarray(v)
        tables = np.clip(tables, -self.pages, self.pages - 1)
        owner = np.clip(owner, -self.sequences, self.sequences - 1)
        at = np.clip(at, -self.longest, self.longest - 1) % self.longest
        for x, whose, last in zip(widen(q), owner, at, strict=True):
            seen = np.arange(0 if self.window is None else max(0, last - self.window), last + 1)
            place = tables[whose, seen // self.page], seen % self.page
            keys, values = (widen(stored[place]).swapaxes(0, 1) for stored in pools)
            x = x.reshape(self.num_KV_heads, -1, self.d)
            yield x, x @ keys.swapaxes(1, 2) * self.scale, keys, values

    def _weights(self, scores: np.ndarray) -> np.ndarray:
        if self.soft_cap is not None:
            scores = self.soft_cap * np.tanh(scores / self.soft_cap)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True)

    def reference(self, q: Any, k: Any, v: Any, tables: Any, owner: Any, at: Any) -> Any:
        o = np.empty(np.shape(q), np.float64)
        for r, (_, scores, _, values) in enumerate(self._rows(q, k, v, tables, owner, at)):
            o[r] = (self._weights(scores) @ values).reshape(self.num_heads, self.d)
        return o

    def magnitude(self, q: Any, k: Any, v: Any, tables: Any, owner: Any, at: Any) -> Any:
        """As MHA's: absolute terms of the weighted sum, widened by how much a score's own rounding moves its weight."""
        o = np.empty(np.shape(q), np.float64)
        for r, (x, scores, keys, values) in enumerate(self._rows(q, k, v, tables, owner, at)):
            spread = (np.abs(x) @ np.abs(keys).swapaxes(1, 2) * self.scale).max(-1, keepdims=True)
            sums = self._weights(scores) @ np.abs(values) * (1 + 2 * spread) + 2.0**-104 * np.abs(values).sum(1, keepdims=True)
            o[r] = sums.reshape(self.num_heads, self.d)
        return o

    def tolerance(self) -> Tolerance:
        return Tolerance(terms=self.d + self.longest + (0 if self.soft_cap is None else 8))

    def ops(self) -> int:
        return 4 * self.num_heads * self.rows * self.longest * self.d
