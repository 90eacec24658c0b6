"""What the cores of an attention pipeline do, and which blocks of keys they work on.

The programs are recorded (see `iron_core.array`). All take the same walk, so that what one gives the next expects;
blocks of keys that no query of a block sees pass unused.
"""

from __future__ import annotations

from typing import Any

import attrs

from iron_core import maximum, minimum, range_


@attrs.frozen
class Walk:
    """Which blocks of keys a pipeline's cores work on: the same rule on all."""

    b: int
    pipelines: int
    index: int
    packed: bool
    causal: bool
    window: int | None

    def block(self, turn: Any) -> Any:
        """Number of the pipeline's block of queries in a round."""
        return 0 if self.packed else turn * self.pipelines + self.index

    def at(self, block: Any, queries: Any, keys: Any) -> Any:
        """Where the block's first query stands among the keys: the queries are the last of them. May be negative."""
        return keys - queries + block * self.b

    def sent(self, keys: Any) -> Any:
        """Blocks of keys that arrive: at least one."""
        return maximum(1, (keys + (self.b - 1)) // self.b)

    def seen(self, block: Any, queries: Any, keys: Any) -> tuple[Any, Any]:
        """The first block of keys that a query of this block sees, and the one after the last."""
        b, rows = self.b, 1 if self.packed else self.b
        at, whole = self.at(block, queries, keys), (keys + (b - 1)) // b
        live = queries if self.packed else (queries + (b - 1)) // b
        last = minimum(whole, maximum(0, live - block) * whole)
        if self.reach is not None:
            last = minimum(last, maximum(0, at + (rows + self.reach + b - 1)) // b)
        first: Any = 0
        if self.window is not None:
            first = minimum(last, maximum(0, at - self.window) // b)
        return first, last

    def blind(self, block: Any, queries: Any, keys: Any) -> Any:
        """How many of the block's rows (the first ones) see no key."""
        live = queries if self.packed else (queries + (self.b - 1)) // self.b
        none = maximum((1 - keys) * self.b, (block - live + 1) * self.b)
        if self.reach is not None:
            before = 0 - (self.at(block, queries, keys) + self.reach)
            none = maximum(none, before * self.b if self.packed else before)
        return minimum(self.b, none)

    @property
    def reach(self) -> int | None:
        """How many keys behind its own place a query sees; None: all."""
        return 0 if self.causal else self.window


def _skip(end: Any, start: Any, stop: Any) -> None:
    for _ in range_(start, stop):
        end.acquire()
        end.release()


def qk_core(
    walk: Walk, q_in: Any, k_in: Any, s_out: Any, zero: Any, multiply: Any, place: Any,
    passes: Any, rounds: Any, queries: Any, keys: Any,
) -> None:  # fmt: skip
    for _ in range_(passes):
        for turn in range_(rounds):
            first, last = walk.seen(walk.block(turn), queries, keys)
            q = q_in.acquire()
            if walk.window is not None:
                _skip(k_in, 0, first)
            for _block in range_(first, last):
                k, s = k_in.acquire(), s_out.acquire()
                zero(s)
                multiply(q, k, s, place)
                k_in.release()
                s_out.release()
            _skip(k_in, last, walk.sent(keys))
            q_in.release()


def softmax_core(
    walk: Walk, s_in: Any, bias_in: Any, p_out: Any, states_out: Any, init: Any, add: Any, cap: Any, hide: Any, softmax: Any,
    copy: Any, state: Any, place: Any, passes: Any, rounds: Any, queries: Any, keys: Any,
) -> None:  # fmt: skip
    """bias_in and add, or cap: None where nothing is added, or no score capped."""

    def tell() -> None:
        for out in states_out:
            copy(state, out.acquire())
            out.release()

    for _ in range_(passes):
        for turn in range_(rounds):
            block = walk.block(turn)
            first, last = walk.seen(block, queries, keys)
            init(state)
            if bias_in is not None and walk.window is not None:
                _skip(bias_in, 0, first)
            for kv in range_(first, last):
                s, p = s_in.acquire(), p_out.acquire()
                if bias_in is not None:
                    add(s, bias_in.acquire())
                    bias_in.release()
                if cap is not None:
                    cap(s, s)
                hide(s, walk.at(block, queries, keys) - kv * walk.b, keys - kv * walk.b)
                softmax(s, p, state, place)
                s_in.release()
                p_out.release()
                tell()
            if bias_in is not None:
                _skip(bias_in, last, walk.sent(keys))
            tell()


def pv_core(
    walk: Walk, p_in: Any, v_in: Any, state_in: Any, o_out: Any, zero: Any, clear_v: Any, clear_o: Any,
    multiply: Any, rescale: Any, rows: Any, sums: Any, whole: Any, place: Any,
    passes: Any, rounds: Any, queries: Any, keys: Any,
) -> None:  # fmt: skip
    for _ in range_(passes):
        for turn in range_(rounds):
            block = walk.block(turn)
            first, last = walk.seen(block, queries, keys)
            zero(sums)
            if walk.window is not None:
                _skip(v_in, 0, first)
            for kv in range_(first, last):
                p, v, state = p_in.acquire(), v_in.acquire(), state_in.acquire()
                # Weights are 0 behind the last key, but what lies there need not be a number.
                clear_v(v, keys - kv * walk.b, walk.b)
                multiply(p, v, sums, state, kv - first, place)
                p_in.release()
                v_in.release()
                state_in.release()
            _skip(v_in, last, walk.sent(keys))
            state, out = state_in.acquire(), o_out.acquire()
            into = out if rows is None else whole
            rescale(sums, into, state, place)
            clear_o(into, 0, walk.blind(block, queries, keys))
            if rows is not None:
                rows(whole, out)
            state_in.release()
            o_out.release()
