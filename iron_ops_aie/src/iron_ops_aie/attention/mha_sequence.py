"""What attention's sequence transfers, and in which order."""

from __future__ import annotations

from itertools import product
from typing import Any

from iron_core import Pattern
from iron_core.devices import ITERATIONS, REPEATS


class UnderWay:
    """Groups of transfers in the order they were started, at most three: a task of each per channel fits its queue.

    What streams by blocks of keys is awaited as outputs are: the first core may still pass by keys that no query sees when
    the last output is out.
    """

    def __init__(self) -> None:
        self.groups: list[tuple[Any, ...]] = []

    def add(self, *groups: Any) -> None:
        self.groups.append(groups)
        if len(self.groups) == 3:
            self.finish_one()

    def finish_one(self) -> None:
        for group in self.groups.pop(0):
            group.finish()

    def finish(self) -> None:
        while self.groups:
            self.finish_one()


def _keys(op: Any, rt: Any, group: Any, lane: int, number: int, times: int) -> None:
    """Send a key head's K and V that many times."""
    b, d, parts = op.B_q, op.d, op.pv_cores
    row, head = (op.num_KV_heads * d, d) if op.kv_interleaved else (d, op.kv_len * d)
    sent = [("K", lane, 0, d), *(("V", lane * parts + i, i * op.pv_width, op.pv_width) for i in range(parts))]
    for name, at, first, width in sent:
        pattern = Pattern(number * head + first, (times, op.kv_len // b, b, width), (0, b * row, row, 1))
        _by_keys(rt, name, at, pattern, group)


def _by_keys(rt: Any, name: str, lane: int, pattern: Pattern, group: Any) -> None:
    """A transfer whose second dimension is blocks of keys, of which a call may bound the number."""
    length = rt.length("kv_blocks")
    rt.fill(name, lane, pattern, size_by=None if length is None else (1, length), group=group, wait=True)


def _bias(op: Any, rt: Any, group: Any, lane: int, first: int, rows: int) -> None:
    """Send rows of the bias, from number `first` of all heads' rows on, block of keys by block."""
    b, n = op.B_q, op.kv_len
    _by_keys(rt, "bias", lane, Pattern(first * n, (1, n // b, rows, b), (0, b, n, 1)), group)


def packed(op: Any, rt: Any, under_way: UnderWay) -> None:
    """A key head per pipeline at a time. Its heads fill a block as often as they go whole, and the rest once more."""
    p, d, group, width = op.num_pipelines, op.d, op.num_heads // op.num_KV_heads, op.pv_width
    for i in range(op.pv_cores):
        rt.drain("O", i, Pattern(i * width, (op.num_heads, width), (d, 1)), wait=True)
    for first in range(0, op.num_KV_heads, p):
        for number in range(first, first + p):
            at = number * group * d
            rt.fill("Q", 0, Pattern(at, (op.B_q // group, group * d), (0, 1)), managed=False)
            if op.B_q % group:
                rt.fill("Q", 0, Pattern.whole((op.B_q % group * d,), at), managed=False)
        step = rt.group()
        for lane in range(p):
            _keys(op, rt, step, lane, first + lane, 1)
            if op.biased:
                _bias(op, rt, step, lane, (first + lane) * group, group)
        under_way.add(step)


def prompt(op: Any, rt: Any, under_way: UnderWay) -> None:
    """A key head at a time, with all blocks of all heads that read it; more than a descriptor repeats, in several parts.

    A bias is of one head and one round of blocks, so keys go with it once for each.
    """
    p, b, d, lanes, group, parts = op.num_pipelines, op.B_q, op.d, op.q_lanes, op.num_heads // op.num_KV_heads, op.pv_cores
    row, head = (op.num_heads * d, d) if op.heads_interleaved else (d, op.seq_len * d)
    rounds, rows = op.seq_len // (b * p), b * p // lanes
    most = 1 if op.biased else REPEATS
    for number in range(op.num_KV_heads):
        for start in range(0, group, ITERATIONS):
            heads, blocks = min(ITERATIONS, group - start), rt.group()
            offsets = [(number * group + start) * head + lane * rows * row for lane in range(lanes)]
            steps = (head, b * p * row, row, 1)
            for lane, i in product(range(lanes), range(parts)):
                pattern = Pattern(offsets[lane] + i * op.pv_width, (heads, rounds, rows, op.pv_width), steps)
                rt.drain("O", lane * parts + i, pattern, group=blocks, wait=True)
            for lane in range(lanes):
                rt.fill("Q", lane, Pattern(offsets[lane], (heads, rounds, rows, d), steps), group=blocks)
            for done in range(0, heads * rounds, most):
                times, step = min(most, heads * rounds - done), rt.group()
                _keys(op, rt, step, 0, number, times)
                if op.biased:
                    first = ((number * group + start) * rounds + done) * b * p
                    for lane in range(lanes):
                        _bias(op, rt, step, lane, first + lane * rows, rows)
                under_way.add(step, *((blocks,) if done + times == heads * rounds else ()))
