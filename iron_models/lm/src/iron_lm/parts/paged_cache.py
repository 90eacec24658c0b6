"""`PagedKVCache`: keys and values of many sequences, in pages of one pool."""

from __future__ import annotations

from typing import Any

import iron_core as iron
from iron_core.declare.formats import as_dtype
from iron_lm.parts.cache import KVCache
from iron_lm.parts.standing import Standing
from iron_lm.run import Run
from iron_ops_aie import Copy, PagedMHA, ScatterRows


class PagedKVCache(KVCache):
    """`pages` pages of `page` tokens each, (pages, page, num_kv_heads, head_dim). Layers may share them.

    Which sequence has which page is said with every pass (`Standing`), and who says it knows what a page holds. Of layers with a reach
    every token is kept.
    """

    def __init__(self, run: Run, num_kv_heads: int, head_dim: int, pages: int, page: int) -> None:
        self.run = run
        shape = (pages, page, num_kv_heads, head_dim)
        self.keys, self.values = (iron.state(shape, as_dtype(run.cache_dtype)) for _ in range(2))

    def write(  # type: ignore[override]  # many places
        self, k: Any, v: Any, prompt: bool, chunk: Any, rows: Any, position: Standing
    ) -> None:
        pages, page, G, D = self.keys.shape
        for new, pool in ((k, self.keys), (v, self.values)):
            ScatterRows(new.reshape(new.size // (G * D), G * D), pool.reshape(pages * page, G * D), position.places)

    def attend(self, q: Any, position: Standing, **fields: Any) -> Any:
        return PagedMHA(q, self.keys, self.values, position.tables, position.owner, position.at, **fields)

    def copy(self, source: Any, target: Any) -> None:
        """One page over another."""
        for pool in (self.keys, self.values):
            Copy(Copy(pool[source]), pool[target])  # at once it would be within one tensor, which no kernel orders
