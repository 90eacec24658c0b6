"""`SlidingKVCache`: keys and values of the last tokens alone."""

from __future__ import annotations

from typing import Any

from iron_lm.parts.cache import KVCache
from iron_lm.run import Run

#: Backends pass keys in runs, counted from a cache's first: where that one is a whole number of runs on, every result is the same.
KEYS_OF_A_RUN = 64


class SlidingKVCache(KVCache):
    """Keys and values of a chunk's tokens and of `window` before it, whole chunks: what layers of a limited reach can see.

    Row r holds token base + r. The base is 0 until a chunk has more than `window` tokens before it; then the chunk stands
    behind these, and each new chunk moves all rows down. `write` and `upto` are given rows for positions, and of drafted tokens the
    first one's row.
    """

    def __init__(self, run: Run, num_kv_heads: int, head_dim: int, window: int) -> None:
        super().__init__(run, num_kv_heads, head_dim, window + run.prefill_chunk)

    @staticmethod
    def window(run: Run, reach: int) -> int | None:
        """The tokens before a chunk's that are held for layers of this reach; None where a whole cache is as small, or where chunks
        do not begin on backends' runs."""
        window = -(-reach // run.prefill_chunk) * run.prefill_chunk
        small = window + run.prefill_chunk < run.max_seq_len
        return window if small and run.prefill_chunk % KEYS_OF_A_RUN == 0 else None

    def write(self, k: Any, v: Any, prompt: bool, chunk: Any, rows: Any, position: Any) -> None:
        C, U = self.run.prefill_chunk, self.run.prefill_step
        _, G, D = self.keys.shape
        if k.size == C * G * D:  # a prompt's chunk, whose number is another here
            chunk = position // C * (C // U)
        super().write(k, v, prompt, chunk, rows, position)

    def in_use(self, tokens: int, base: int) -> dict[str, tuple[Any, int | None]]:
        return super().in_use(max(0, tokens - base), base)

    def slide(self, compiled: Any, rows: int) -> None:
        """Move all down by `rows`, over the first ones, in the memory of a compiled graph."""
        for state in (self.keys, self.values):
            held = compiled.read(state)
            held[:-rows] = held[rows:]
            compiled.write(state, held)
