"""`KVCache`: keys and values of the tokens so far."""

from __future__ import annotations

from typing import Any

import iron_core as iron
from iron_core.declare.formats import as_dtype
from iron_lm.parts.part import of_rows
from iron_lm.run import Run
from iron_ops_aie import MHA, Copy


class KVCache:
    """Keys and values of `rows` tokens, `max_seq_len` by default, (rows, num_kv_heads, head_dim) each. Layers may share one."""

    def __init__(self, run: Run, num_kv_heads: int, head_dim: int, rows: int | None = None) -> None:
        self.run = run
        shape = (run.max_seq_len if rows is None else rows, num_kv_heads, head_dim)
        self.keys, self.values = (iron.state(shape, as_dtype(run.cache_dtype)) for _ in range(2))

    @property
    def nbytes(self) -> int:
        """Bytes of both."""
        return sum(state.format.nbytes(state.shape) for state in (self.keys, self.values))

    def rewind(self, position: int) -> int:
        """Of `position` tokens that a session wants to keep, how many stand: all, for every row is kept."""
        return position

    def in_use(self, tokens: int, base: int) -> dict[str, tuple[Any, int | None]]:
        """The states that hold so many tokens, by name, each with how many of its first rows do; None: it
        is of all tokens in one. base: the first token in caches that slide."""
        return {"keys": (self.keys, tokens), "values": (self.values, tokens)}

    def write(self, k: Any, v: Any, prompt: bool, chunk: Any, rows: Any, position: Any) -> None:
        """The call's own keys and values, (rows, num_kv_heads * head_dim), into their places."""
        _, G, D = self.keys.shape
        for new, state in ((k, self.keys), (v, self.values)):
            if prompt:
                n = new.size // (G * D)
                Copy(new.reshape(n, G, D), of_rows(state, n, self.run, chunk)[:rows])
            else:
                Copy(new.reshape(G, D), state[position])

    def attend(self, q: Any, position: Any, **fields: Any) -> Any:
        """Queries (rows, num_heads, head_dim) of a call's own tokens, over keys and values up to each one's own. fields: of `MHA`."""
        return MHA(q, *self.upto(position), heads_interleaved=True, kv_interleaved=True, **fields)

    def upto(self, position: Any) -> tuple[Any, Any]:
        """Keys and values of every token up to `position`, that one's among them."""
        seen = position + 1
        return self.keys[:seen], self.values[:seen]
