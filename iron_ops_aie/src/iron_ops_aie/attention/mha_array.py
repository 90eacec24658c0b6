"""The array of `MHA`: pipelines of three cores, one per column, that pass blocks of keys over a block of queries.

In a pipeline the first core multiplies a block of queries by a block of keys, the second hides what a query does not see
and turns scores into weights, the third adds up weighted values and divides at the end. Scores and weights cross the
column's memory tile, which re-orders them; the softmax's state goes from neighbour to neighbour.

Several queries: a memory tile deals blocks of queries out to the pipelines, in turn, and all pipelines read one stream of
K and one of V, which the shim sends again for every round of blocks and every head of a group. One query ("packed"): the
heads of a group are the rows of a block, repeated until it is full; each pipeline has key heads, and streams, of its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import (
    Buffer,
    ObjectFifo,
    ObjectType,
    Pattern,
    Tile,
    Worker,
    bfloat16,
    require,
    require_dtype,
    require_npu,
    require_whole,
    round_to,
)
from iron_core.array.fit import memory, require_memory
from iron_core.declare.tolerance import Deviation
from iron_core.devices import ITERATIONS, REPEATS
from iron_core.errors import DeviationError, Unresolvable
from iron_ops_aie.attention.kernels_mha import LEAST_SCALE, PLACE, AttentionKernels, exponent_scale
from iron_ops_aie.attention.mha_cores import Walk, pv_core, qk_core, softmax_core
from iron_ops_aie.attention.mha_places import SERVED, places_of, q_lanes

#: Sizes of a block of queries, and of a block of keys.
BLOCKS = (64, 32, 16)
#: The kernels take heads of a multiple of this many numbers.
HEAD_STEP = 64
#: Pipelines there may be at most: one for each column of npu2.
PIPELINES = 8
#: The gate: how far off a number may be, and the share of those that may be further.
RELATIVE, ABSOLUTE, BEYOND = 0.04, 0.15, 0.005


def blocks_of_keys(op: Any) -> Any:
    """Blocks that hold the valid keys, and one where there are none: `max(1, ceil(kv_valid / B_q))` as one quotient.

    Its steps are longer than B_q by so little that over all blocks it adds up to one key: so none differs but at 0.
    """
    most = op.kv_len // op.B_q
    return op.kv_valid * most // (op.B_q * most + 1) + 1


class MHAArray:
    """How an `MHA` is computed on an array."""

    @property
    def _group(self: Any) -> int:
        """Heads that share a key head."""
        return self.num_heads // self.num_KV_heads

    def _kernels(self: Any, arch: str) -> AttentionKernels:
        step = 0 if self.packed else 1
        return AttentionKernels(self.B_q, self.d, self.causal, self.window, step, exponent_scale(self.scale), arch)

    # -- tunables ----------------------------------------------------------------------------------

    def resolve(self: Any, dev: Any) -> Any:
        """The blocks and pipelines that take the least time; any where none fit (`compatible` says why)."""
        require_npu(self, dev)
        require_dtype(self, bfloat16, "T", "C")
        packed = self.seq_len == 1
        found = []
        for b in (self.B_q,) if self.B_q else BLOCKS:
            for p in (self.num_pipelines,) if self.num_pipelines else range(1, PIPELINES + 1):
                if places_of(p, packed, dev.columns) is not None and self._blocked(b, p)._divides():
                    # A block costs as much again as about 500 of its numbers; one query has nothing to gain from a larger one.
                    found.append((b if packed else 0, (1 + 512 / b**2) / p, -b, p))
        full = set()  # blocks that no core has room for: those of every pipeline hold the same
        for _, _, minus, p in sorted(found):
            made = self._blocked(-minus, p)
            if -minus not in full and all(held.fits for held in memory(made, dev)):
                return made
            full.add(-minus)
        least = next((b for b in reversed(BLOCKS) if b >= self._group), BLOCKS[0]) if packed else BLOCKS[-1]
        return self._blocked(self.B_q or least, self.num_pipelines or 1)

    def _blocked(self: Any, b: int, p: int) -> Any:
        packed = self.seq_len == 1
        return self.evolve(
            B_q=b,
            num_pipelines=p,
            packed=packed,
            q_lanes=q_lanes(p),
            kv_lanes=p if packed else 1,
            o_rows=self._group if packed else b,
        )

    def _divides(self: Any) -> bool:
        """Are the extents whole blocks, of a size there is?"""
        try:
            self._whole()
        except Unresolvable:
            return False
        return True

    def compatible(self: Any, dev: Any) -> None:
        require_dtype(self, bfloat16, "T", "C")
        require(self.soft_cap is None, f"MHA: soft_cap={self.soft_cap}; its array bends no scores. Legal there: None.")
        low = exponent_scale(self.scale) < LEAST_SCALE
        require(not low, f"MHA: scale={self.scale}; its array hides keys by very low scores. Legal: at least {LEAST_SCALE}.")
        self._whole()
        if dev is not None:
            require_memory(self, dev, "Give a smaller B_q= or d.")

    def _whole(self: Any) -> None:
        b, p, packed, group = self.B_q, self.num_pipelines, self.packed, self._group
        require_whole(self, "d", HEAD_STEP, "steps of its kernels")
        require(b in BLOCKS, f"MHA: B_q={b}; legal: {', '.join(map(str, sorted(BLOCKS)))}.")
        require_whole(self, "kv_len", b, f"blocks of B_q={b} keys")
        legal = 1 <= p <= PIPELINES and p % q_lanes(p) == 0
        require(legal, f"MHA: num_pipelines={p}; legal: 1 to {SERVED}, and {PIPELINES}.")
        if not packed:
            require_whole(self, "seq_len", b * p, f"blocks of B_q={b} over num_pipelines={p}", "give B_q= or num_pipelines=")
            return
        require(
            group <= b,
            f"MHA: {group} heads share a key head, and a block has B_q={b} rows. Legal: at most {BLOCKS[0]}, and B_q= as many.",
        )
        require(
            self.num_KV_heads % p == 0 and p <= SERVED,
            f"MHA: num_KV_heads={self.num_KV_heads} do not divide over num_pipelines={p}. Legal: a divisor of at most {SERVED}.",
        )

    # -- the array ---------------------------------------------------------------------------------

    def array(self: Any, target: Any) -> None:
        p, b, packed, columns = self.num_pipelines, self.B_q, self.packed, target.dev.columns
        at = places_of(p, packed, columns)
        if at is None:
            raise Unresolvable(
                f"MHA: num_pipelines={p} and their streams do not fit the {columns} columns of {target.dev}. "
                f"Give a {'smaller num_pipelines= or a ' if p > 1 else ''}wider device."
            )
        k = self._kernels(target.dev.arch)
        shim = [Tile("shim", c, 0) for c in range(columns)]
        tiles = [Tile("mem", c, 1) for c in range(columns)]
        each = p // self.q_lanes
        o_type = ObjectType.of((self.o_rows, self.d), bfloat16)
        cut = self.o_rows < b

        queries: list[Any] = []
        outputs: list[Any] = []
        for lane in range(self.q_lanes):
            queries += _dealt(k, self.Q.lane(lane, shim[at.q[lane]]), tiles[at.q[lane]], lane, each)
            dims = () if cut else k.given("out")
            outputs += _collected(o_type, dims, self.O.lane(lane, shim[at.o[lane]]), tiles[at.o[lane]], lane, each)
        streams: dict[str, list[Any]] = {"K": [], "V": []}
        for name, where in (("K", at.k), ("V", at.v)):
            for lane in range(self.kv_lanes):
                fifo = ObjectFifo(k.tile, name=f"{name}{lane}")
                fifo.prod(tile=getattr(self, name).lane(lane, shim[where[lane]]))
                held: Any = dict(tile=tiles[where[lane]], name=f"{name}{lane}_held", dims_to_stream=k.held(name.lower()))
                streams[name].append(fifo.cons().forward(**held))

        values = [self.passes, self.rounds, self.queries, self.keys]
        for i in range(p):
            walk = Walk(b, p, i, packed, self.causal, self.window)
            scores = ObjectFifo(k.square, name=f"scores{i}")
            lined = scores.cons().forward(tile=tiles[i], name=f"scores{i}_rows", dims_to_stream=k.given("scores"))
            weights = ObjectFifo(k.square, name=f"weights{i}")
            mixed = weights.cons().forward(tile=tiles[i], name=f"weights{i}_held", dims_to_stream=k.held("weights"))
            states = ObjectFifo(k.state, name=f"states{i}")
            places = [Buffer(2, "int32", name=f"place{i}_{stage}", initial_value=PLACE) for stage in range(3)]
            state = Buffer(4 * b, "float32", name=f"state{i}")
            sums = Buffer((b, self.d), "float32", name=f"sums{i}")
            whole = Buffer((b, self.d), bfloat16, name=f"whole{i}") if cut else None
            rows = k.first_rows(self.o_rows) if cut else None
            keys, vals = (streams[name][i if packed else 0] for name in "KV")
            qk = [walk, queries[i].cons(), keys.cons(), scores.prod(), k.zero_scores(), k.matmul_QK(), places[0]]
            softmax = [walk, lined.cons(), weights.prod(), states.prod()]
            softmax += [k.init_state(), k.hide(), k.softmax(), k.copy_state(), state, places[1]]
            # The accumulator leaves room for one output only.
            pv = [walk, mixed.cons(), vals.cons(), states.cons(), outputs[i].prod(depth=1), k.zero_sums(), k.clear("v")]
            pv += [k.clear("out"), k.matmul_PV(), k.rescale(), rows, sums, whole, places[2]]
            stages: Any = (("qk", qk_core, qk), ("softmax", softmax_core, softmax), ("pv", pv_core, pv))
            for row, (name, core, args) in enumerate(stages, 2):
                Worker(core, args, values=values, tile=Tile("core", i, row), name=f"{name}{i}")

    # -- the sequence ------------------------------------------------------------------------------

    def sequence(self: Any, rt: Any) -> None:
        """K and V carry, under a bound on the keys, only the blocks that hold some."""
        rt.preamble()
        under_way = _UnderWay()
        (_packed if self.packed else _prompt)(self, rt, under_way)
        while under_way.groups:
            under_way.finish_one()

    # -- the same in numpy -------------------------------------------------------------------------

    def composed(self: Any, Q: Any, K: Any, V: Any, valid: int | None = None, kv_valid: int | None = None) -> Any:
        """The output as the array rounds it, of the valid queries alone. Operands may be whole or cut to the bounds."""
        # How tiles are held does not show in the numbers, so any architecture's kernels do.
        k, b, group = self._kernels("AIE2P"), self.B_q, self._group
        n = self.seq_len if valid is None else valid
        m = self.kv_len if kv_valid is None else kv_valid
        q = (Q.swapaxes(0, 1) if self.heads_interleaved else Q)[:, :n]
        keys, values = (_blocks((x.swapaxes(0, 1) if self.kv_interleaved else x)[:, :m], b) for x in (K, V))
        out = np.zeros(q.shape, bfloat16)
        if self.packed:
            for g in range(self.num_KV_heads if n else 0):
                heads = slice(g * group, (g + 1) * group)
                block = np.resize(q[heads, 0], (b, self.d))
                out[heads, 0] = _attend(k, block, keys[g], values[g], m - 1, m)[:group]
        else:
            padded = _blocks(q, b)
            for h in range(self.num_heads):
                for first in range(0, n, b):
                    block = padded[h, first : first + b]
                    made = _attend(k, block, keys[h // group], values[h // group], m - n + first, m)
                    out[h, first : first + b] = made[: n - first]
        return out.swapaxes(0, 1) if self.heads_interleaved else out

    def array_check(self: Any, outputs: Any, exact: Any, *inputs: Any) -> Deviation:
        """Within 4 % or 0.15: weights and scores are bfloat16 on the way. One number in 200 may be further off.

        The deviation is the worst of those that count. DeviationError also where one is no number.
        """
        got, want = np.asarray(outputs), np.asarray(exact)
        if got.shape != want.shape:
            raise DeviationError(f"MHA.O: shape {got.shape}, exact {want.shape}.")
        if not got.size:
            return Deviation()
        wide, want = got.astype(np.float64), want.astype(np.float64)
        error = np.abs(wide - want).ravel()
        limit = np.maximum(RELATIVE * np.abs(want), ABSOLUTE).ravel()
        ratio = np.where(np.isnan(error), np.inf, error / limit)
        order = np.argsort(ratio)
        at = order[-1] if np.isinf(ratio[order[-1]]) else order[-1 - int(BEYOND * got.size)]
        if ratio[at] > 1:
            raise DeviationError(
                f"MHA.O: got {wide.flat[at]:.9g}, exact {want.flat[at]:.9g}; {int((ratio > 1).sum())} of {got.size} are off by "
                f"more than {RELATIVE:.0%} and {ABSOLUTE}; {BEYOND:.1%} may be."
            )
        return Deviation(float(error[at]), float(limit[at]), float(ratio[at]), got.size)


def _dealt(k: AttentionKernels, lane: Any, memory: Any, number: int, each: int) -> list[Any]:
    """Fifos of blocks of queries, one per pipeline of a lane."""
    fifo = ObjectFifo(ObjectType.of((each * k.b, k.d), bfloat16), name=f"Q{number}")
    fifo.prod(tile=lane)
    names = [f"Q{number}_{i}" for i in range(each)]
    if each == 1:
        return [fifo.cons().forward(tile=memory, name=names[0], dims_to_stream=k.held("q"))]
    offsets = [i * k.b * k.d for i in range(each)]
    return fifo.cons().split(offsets, [k.tile] * each, tile=memory, names=names, dims_to_stream=k.held("q"))


def _collected(part: Any, dims: Any, lane: Any, memory: Any, number: int, each: int) -> list[Any]:
    """Fifos of blocks of outputs, one per pipeline of a lane."""
    names = [f"O{number}_{i}" for i in range(each)]
    if each == 1:
        one = ObjectFifo(part, name=names[0])
        one.cons().forward(tile=memory, name=f"O{number}", dims_to_stream=dims).cons(tile=lane)
        return [one]
    fifo = ObjectFifo(ObjectType.of((each * part.shape[0], part.shape[1]), bfloat16), name=f"O{number}", dims_to_stream=dims)
    fifo.cons(tile=lane)
    return fifo.prod().join([i * part.elements for i in range(each)], [part] * each, tile=memory, names=names)


class _UnderWay:
    """Groups of transfers in the order they were started, at most three: a task of each per channel fits its queue.

    K and V are awaited as outputs are: the first core may still pass by keys that no query sees when the last output is out.
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


def _keys(op: Any, rt: Any, group: Any, lane: int, number: int, times: int) -> None:
    """Send a key head's K and V that many times."""
    b, d = op.B_q, op.d
    row, head = (op.num_KV_heads * d, d) if op.kv_interleaved else (d, op.kv_len * d)
    length = rt.length("kv_blocks")
    pattern = Pattern(number * head, (times, op.kv_len // b, b, d), (0, b * row, row, 1))
    for name in ("K", "V"):
        rt.fill(name, lane, pattern, size_by=None if length is None else (1, length), group=group, wait=True)


def _packed(op: Any, rt: Any, under_way: _UnderWay) -> None:
    """A key head per pipeline at a time. Its heads fill a block as often as they go whole, and the rest once more."""
    p, d, group = op.num_pipelines, op.d, op._group
    rt.drain("O", 0, Pattern.whole((op.num_heads * d,)), wait=True)
    for first in range(0, op.num_KV_heads, p):
        for number in range(first, first + p):
            at = number * group * d
            rt.fill("Q", 0, Pattern(at, (op.B_q // group, group * d), (0, 1)), managed=False)
            if op.B_q % group:
                rt.fill("Q", 0, Pattern.whole((op.B_q % group * d,), at), managed=False)
        step = rt.group()
        for lane in range(p):
            _keys(op, rt, step, lane, first + lane, 1)
        under_way.add(step)


def _prompt(op: Any, rt: Any, under_way: _UnderWay) -> None:
    """A key head at a time, with all blocks of all heads that read it; more than a descriptor repeats, in several parts."""
    p, b, d, lanes, group = op.num_pipelines, op.B_q, op.d, op.q_lanes, op._group
    row, head = (op.num_heads * d, d) if op.heads_interleaved else (d, op.seq_len * d)
    rounds, rows = op.seq_len // (b * p), b * p // lanes
    for number in range(op.num_KV_heads):
        for start in range(0, group, ITERATIONS):
            heads, blocks = min(ITERATIONS, group - start), rt.group()
            for way, name in (("drain", "O"), ("fill", "Q")):
                for lane in range(lanes):
                    offset = (number * group + start) * head + lane * rows * row
                    pattern = Pattern(offset, (heads, rounds, rows, d), (head, b * p * row, row, 1))
                    rt.transfer(way, name, lane, pattern, group=blocks, wait=way == "drain")
            for done in range(0, heads * rounds, REPEATS):
                times, step = min(REPEATS, heads * rounds - done), rt.group()
                _keys(op, rt, step, 0, number, times)
                under_way.add(step, *((blocks,) if done + times == heads * rounds else ()))


def _blocks(x: np.ndarray, b: int) -> np.ndarray:
    """(heads, n, d) with n filled up by zeros to whole blocks, at least one."""
    heads, n, d = x.shape
    whole = np.zeros((heads, max(1, -(-n // b)) * b, d), bfloat16)
    whole[:, :n] = x
    return whole


def _attend(k: AttentionKernels, q: np.ndarray, keys: np.ndarray, values: np.ndarray, at: int, m: int) -> np.ndarray:
    """A block of queries, the first at key `at`, over the first m keys: every block of keys that one of them sees."""
    b = k.b
    stand = at + np.arange(b)[:, None] * k.step
    key = np.arange(len(keys))[None]
    seen = np.broadcast_to(key < m, (b, len(keys)))
    if k.causal:
        seen = seen & (key <= stand)
    if k.window is not None:
        seen = seen & (np.abs(key - stand) <= k.window)
    multiply, hide, softmax, clear, add = k.matmul_QK(), k.hide(), k.softmax(), k.clear("v"), k.matmul_PV()
    state, sums = k.init_state().reference(), k.zero_sums().reference()
    held_q = k.hold("q", q)
    visible = np.flatnonzero(seen.reshape(b, -1, b).any((0, 2)))
    for number, first in enumerate(visible * b):
        block = slice(first, first + b)
        scores = round_to(multiply.reference(held_q, k.hold("k", keys[block]), k.zero_scores().reference(), PLACE), bfloat16)
        scores = round_to(hide.reference(k.rows("scores", scores), at - first, m - first), bfloat16)
        weights, state = softmax.reference(scores, state, PLACE)
        held = k.hold("weights", round_to(weights, bfloat16).reshape(b, b))
        v = round_to(clear.reference(k.hold("v", values[block]), m - first, b), bfloat16)
        sums = add.reference(held, v, sums, state, number, PLACE)
    divided, _ = k.rescale().reference(sums, state, PLACE)
    out = k.rows("out", round_to(divided, bfloat16))
    out[~seen.any(1)] = 0
    return out
