"""The array of `MHA`: pipelines of three or four cores, one per column, that pass blocks of keys over a block of queries.

In a pipeline the first core multiplies a block of queries by a block of keys, the second adds a bias, caps scores, hides
what a query does not see and turns scores into weights, the third adds up weighted values and divides at the end; with
`pv_cores` 2 there is a fourth, and each of the two has half of a head's values. Scores and weights cross the column's
memory tile, which re-orders them; the softmax's state goes from neighbour to neighbour.

Several queries: a memory tile deals blocks of queries (and of the bias) out to the pipelines, in turn, and all pipelines
read one stream of K and one of V, which the shim sends again for every round of blocks and every head of a group. One query
("packed"): the heads of a group are the rows of a block, repeated until it is full; each pipeline has key heads, and
streams, of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from iron_core import (
    Buffer,
    Level,
    ObjectFifo,
    ObjectType,
    Tile,
    Worker,
    bfloat16,
    require,
    require_dtype,
    require_npu,
    require_whole,
)
from iron_core.array import fit
from iron_core.declare.tolerance import Deviation
from iron_core.devices import CORE_ROW
from iron_core.errors import DeviationError, Unresolvable
from iron_ops_aie.attention import kernels_scores
from iron_ops_aie.attention.kernels_mha import LEAST_SCALE, PLACE, AttentionKernels, exponent_scale
from iron_ops_aie.attention.mha_composed import Scores, attend, blocks
from iron_ops_aie.attention.mha_cores import Walk, pv_core, qk_core, softmax_core
from iron_ops_aie.attention.mha_places import SERVED, bias_lanes, places_of, q_lanes
from iron_ops_aie.attention.mha_sequence import UnderWay, packed, prompt
from iron_ops_aie.attention.rules import CAPS

#: Sizes of a block of queries, and of a block of keys.
BLOCKS = (64, 32, 16)
#: The kernels take heads of a multiple of this many numbers, and of as many for each core that adds up values.
HEAD_STEP = 16
#: Pipelines there may be at most: one for each column of npu2.
PIPELINES = 8
#: Cores of a pipeline that add up values.
PV_CORES = (1, 2)
#: What the cap of a score may be before the score is scaled: far enough below what hides a key.
LEAST_CAP, MOST_CAP = 2.0**-100, 2.0**90
#: The gates, by `exp2` and `state`: how far off a number may be, relative to it and at least. Weights and scores are bfloat16 on
#: the way; what is up to 6 % too high, or rounded after every block of keys, may be further off.
GATES = {
    ("accurate", "float32"): (0.04, 0.15),
    ("accurate", "bfloat16"): (0.06, 0.2),
    ("fast", "float32"): (0.1, 0.2),
    ("fast", "bfloat16"): (0.12, 0.25),
}
#: The share of the numbers that may be beyond.
BEYOND = 0.005


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
        return AttentionKernels(
            self.B_q, self.d, width=self.pv_width, scale=exponent_scale(self.scale), exp2=self.exp2, state=self.state, arch=arch
        )

    def _scores(self: Any) -> Scores:
        """What happens to a block of scores before its softmax."""
        b, scale = self.B_q, self.scale
        return Scores(
            kernels_scores.add_bias(b, self.o_rows, scale) if self.biased else None,
            None if self.soft_cap is None else kernels_scores.cap_scores(b, self.soft_cap, scale),
            kernels_scores.hide(b, self.causal, self.window, 0 if self.packed else 1),
        )

    # -- tunables ----------------------------------------------------------------------------------

    def resolve(self: Any, dev: Any) -> Any:
        """The blocks and pipelines that take the least time, of one core that adds up values where that has room; any where
        none fit (`compatible` says why)."""
        require_npu(self, dev)
        require_dtype(self, bfloat16, "T", "C")
        packed = self.seq_len == 1
        found = []
        for parts in (self.pv_cores,) if self.pv_cores else PV_CORES:
            for b in (self.B_q,) if self.B_q else BLOCKS:
                for p in (self.num_pipelines,) if self.num_pipelines else range(1, PIPELINES + 1):
                    room = places_of(p, packed, dev.columns, parts, self.biased) is not None
                    if room and self._blocked(b, p, parts)._divides():
                        # A block costs as much again as about 500 of its numbers; one query has nothing to gain from a larger one.
                        found.append((parts, b if packed else 0, (1 + 512 / b**2) / p, -b, p))
        full = set()  # blocks that no core has room for: those of every pipeline hold the same
        for parts, _, _, minus, p in sorted(found):
            made = self._blocked(-minus, p, parts)
            if (minus, parts) not in full and all(held.fits for held in fit.memory(made, dev)):
                return made
            full.add((minus, parts))
        least = next((b for b in reversed(BLOCKS) if b >= self._group), BLOCKS[0]) if packed else BLOCKS[-1]
        return self._blocked(self.B_q or least, self.num_pipelines or 1, self.pv_cores or PV_CORES[-1 if found else 0])

    def _blocked(self: Any, b: int, p: int, parts: int) -> Any:
        packed = self.seq_len == 1
        return self.evolve(
            B_q=b,
            num_pipelines=p,
            pv_cores=parts,
            placement=self.placement or "tiles",
            packed=packed,
            q_lanes=q_lanes(p),
            kv_lanes=p if packed else 1,
            bias_lanes=bias_lanes(p, packed),
            o_rows=self._group if packed else b,
            pv_width=self.d // parts,
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
        require(not self.spanned, "MHA: spans; its array sees the keys of one text. Legal: a call for each text.")
        scale, cap = self.scale, self.soft_cap
        low = exponent_scale(scale) < LEAST_SCALE
        require(not low, f"MHA: scale={scale}; its array hides keys by very low scores. Legal: at least {LEAST_SCALE}.")
        least, most = max(scale * LEAST_CAP, CAPS[0]), min(scale * MOST_CAP, CAPS[1])
        require(
            cap is None or least <= cap <= most,
            f"MHA: soft_cap={cap}; its array caps scores before they are scaled, by scale={scale}. Legal: {least} to {most}.",
        )
        require(
            self.exp2 == "accurate" or dev is None or dev.arch == "AIE2P",
            f"MHA: exp2={self.exp2!r} on {dev}; that is an instruction of AIE2P alone. Legal: exp2='accurate'.",
        )
        self._whole()
        if dev is not None:
            self._require_room(dev)

    def _require_room(self: Any, dev: Any) -> None:
        """Unresolvable where a core has no room for its blocks, with the most numbers of a head that it has room for."""
        if all(held.fits for held in fit.memory(self, dev)):
            return
        b, p, parts = self.B_q, self.num_pipelines, self.pv_cores
        step = HEAD_STEP * parts
        narrower = (self.evolve(d=d)._blocked(b, p, parts) for d in range(self.d - step, 0, -step))
        most = next((op.d for op in narrower if all(held.fits for held in fit.memory(op, dev))), None)
        ways = [f"Nearest legal d: {most}"] * (most is not None) + ["give a smaller B_q="] * (b > BLOCKS[-1])
        ways += ["give pv_cores=2"] * (parts < PV_CORES[-1])
        fit.require_memory(self, dev, f"{'; or '.join(ways)}.")

    def _whole(self: Any) -> None:
        b, p, packed, group = self.B_q, self.num_pipelines, self.packed, self._group
        require(self.pv_cores in PV_CORES, f"MHA: pv_cores={self.pv_cores}; legal: {', '.join(map(str, PV_CORES))}.")
        require_whole(self, "d", HEAD_STEP * self.pv_cores, "steps of its kernels")
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
        p, b, packed, columns, parts = self.num_pipelines, self.B_q, self.packed, target.dev.columns, self.pv_cores
        at = places_of(p, packed, columns, parts, self.biased)
        if at is None:
            fewer = [n for n in range(p - 1, 0, -1) if p % n == 0 and places_of(n, packed, columns, parts, self.biased)]
            raise Unresolvable(
                f"MHA: num_pipelines={p} and their streams do not fit the {columns} columns of {target.dev}. "
                f"{f'Nearest legal num_pipelines: {fewer[0]}; or g' if fewer else 'G'}ive a wider device."
            )
        k, scored = self._kernels(target.dev.arch), self._scores()
        pins = type(self).fields["placement"].domain.pins(self.placement)
        shim, memory = _tiles("shim", pins.shims, columns), _tiles("mem", pins.memtiles, columns)
        each = p // self.q_lanes
        o_type, bias_type = ObjectType.of((self.o_rows, k.width), bfloat16), ObjectType.of((self.o_rows, b), bfloat16)
        cut = self.o_rows < b

        queries: list[Any] = []
        bias: list[Any] = []
        outputs: list[list[Any]] = [[] for _ in range(parts)]
        for lane in range(self.q_lanes):
            into = self.Q.lane(lane, shim(at.q[lane]))
            queries += _dealt(f"Q{lane}", k.tile, k.held("q"), into, memory(at.q[lane]), each)
            dims = () if cut else k.given("out")
            for i in range(parts):
                number = lane * parts + i
                out = self.O.lane(number, shim(at.o[number]))
                outputs[i] += _collected(f"O{number}", o_type, dims, out, memory(at.o[number]), each)
        streams: dict[str, list[Any]] = {"K": [], "V": []}
        for name, kind, where in (("K", k.tile, at.k), ("V", k.values, at.v)):
            for lane, column in enumerate(where):
                into = getattr(self, name).lane(lane, shim(column))
                streams[name] += _dealt(f"{name}{lane}", kind, k.held(name.lower()), into, memory(column), 1)
        for lane, column in enumerate(at.bias):
            into = self.bias.lane(lane, shim(column))
            bias += _dealt(f"bias{lane}", bias_type, (), into, memory(column), p // self.bias_lanes)

        values = [self.passes, self.rounds, self.queries, self.keys]
        for i in range(p):
            walk = Walk(b, p, i, packed, self.causal, self.window)
            scores = ObjectFifo(k.square, name=f"scores{i}")
            lined = scores.cons().forward(tile=memory(i), name=f"scores{i}_rows", dims_to_stream=k.given("scores"))
            weights = ObjectFifo(k.square, name=f"weights{i}")
            mixed = weights.cons().forward(tile=memory(i), name=f"weights{i}_held", dims_to_stream=k.held("weights"))
            own = i if packed else 0
            q = queries[i].cons(depth=1 if parts > 1 else None)
            args = [walk, q, streams["K"][own].cons(), scores.prod(), k.zero_scores(), k.matmul_QK(), _place(i, "qk")]
            stages: list[Any] = [(f"qk{i}", qk_core, args)]
            states = []
            for part in range(parts):
                name = f"{i}" if parts == 1 else f"{i}_{part}"
                states.append(ObjectFifo(k.rows_state, name=f"states{name}"))
                sums = Buffer((b, k.width), k.state_dtype, name=f"sums{name}")
                whole = Buffer((b, k.width), bfloat16, name=f"whole{name}") if cut else None
                rows = k.first_rows(self.o_rows) if cut else None
                # The accumulator leaves room for one output only.
                ends = [mixed.cons(), streams["V"][own * parts + part].cons(), states[-1].cons(), outputs[part][i].prod(depth=1)]
                kernels = [k.zero_sums(), k.clear("v"), k.clear("out"), k.matmul_PV(), k.rescale(), rows]
                stages.append((f"pv{name}", pv_core, [walk, *ends, *kernels, sums, whole, _place(name, "pv")]))
            args = [walk, lined.cons(), bias[i].cons() if bias else None, weights.prod(), [s.prod() for s in states]]
            args += [k.init_state(), scored.add, scored.cap, scored.hide, k.softmax(), k.copy_state()]
            args += [Buffer(4 * b, k.state_dtype, name=f"state{i}"), _place(i, "softmax")]
            stages.insert(parts, (f"softmax{i}", softmax_core, args))  # next to those it tells its state
            for row, (name, core, args) in enumerate(stages, CORE_ROW):
                tile = Tile("core", i, row if pins.cores is Level.TILE else None)
                Worker(core, args, values=values, tile=tile, name=name)

    # -- the sequence ------------------------------------------------------------------------------

    def sequence(self: Any, rt: Any) -> None:
        """K, V and the bias carry, under a bound on the keys, only the blocks that hold some."""
        rt.preamble()
        under_way = UnderWay()
        (packed if self.packed else prompt)(self, rt, under_way)
        under_way.finish()

    # -- the same in numpy -------------------------------------------------------------------------

    def composed(self: Any, Q: Any, K: Any, V: Any, bias: Any = None, valid: int | None = None, kv_valid: int | None = None) -> Any:
        """The output as the array rounds it, of the valid queries alone. Operands may be whole or cut to the bounds."""
        # How tiles are held does not show in the numbers, so any architecture's kernels do.
        k, scored, b, group = self._kernels("AIE2P"), self._scores(), self.B_q, self._group
        n = self.seq_len if valid is None else valid
        m = self.kv_len if kv_valid is None else kv_valid
        q = (Q.swapaxes(0, 1) if self.heads_interleaved else Q)[:, :n]
        keys, values = (blocks((x.swapaxes(0, 1) if self.kv_interleaved else x)[:, :m], b) for x in (K, V))
        added = None if bias is None else np.pad(bias[:, :n, :m], ((0, 0), (0, -n % b), (0, keys.shape[1] - m)))
        out = np.zeros(q.shape, bfloat16)

        def attended(block: np.ndarray, kv: int, extra: Any, at: int) -> np.ndarray:
            seen = self._seen(at + np.arange(b)[:, None] * (not self.packed), np.arange(keys.shape[1])[None], m)
            return attend(k, scored, block, keys[kv], values[kv], extra, seen, at, m)

        if self.packed:
            for g in range(self.num_KV_heads if n else 0):
                heads = slice(g * group, (g + 1) * group)
                block = np.resize(q[heads, 0], (b, self.d))
                out[heads, 0] = attended(block, g, None if added is None else added[heads, 0], m - 1)[:group]
        else:
            padded = blocks(q, b)
            for h in range(self.num_heads):
                for first in range(0, n, b):
                    rows = slice(first, first + b)
                    made = attended(padded[h, rows], h // group, None if added is None else added[h, rows], m - n + first)
                    out[h, rows] = made[: n - first]
        return out.swapaxes(0, 1) if self.heads_interleaved else out

    def _seen(self: Any, at: np.ndarray, key: np.ndarray, m: int) -> np.ndarray:
        """Does a query that stands at key `at` see a key, of m?"""
        seen = np.broadcast_to(key < m, np.broadcast_shapes(at.shape, key.shape))
        if self.causal:
            seen = seen & (key <= at)
        if self.window is not None:
            seen = seen & (np.abs(key - at) <= self.window)
        return seen

    def array_check(self: Any, outputs: Any, exact: Any, *inputs: Any) -> Deviation:
        """Within 4 % or 0.15, or what its `GATES` say. One number in 200 may be further off.

        The deviation is the worst of those that count. DeviationError also where one is no number.
        """
        got, want = np.asarray(outputs), np.asarray(exact)
        if got.shape != want.shape:
            raise DeviationError(f"MHA.O: shape {got.shape}, exact {want.shape}.")
        if not got.size:
            return Deviation()
        wide, want = got.astype(np.float64), want.astype(np.float64)
        error = np.abs(wide - want).ravel()
        relative, absolute = GATES[self.exp2, self.state]
        limit = np.maximum(relative * np.abs(want), absolute).ravel()
        ratio = np.where(np.isnan(error), np.inf, error / limit)
        order = np.argsort(ratio)
        at = order[-1] if np.isinf(ratio[order[-1]]) else order[-1 - int(BEYOND * got.size)]
        if ratio[at] > 1:
            raise DeviationError(
                f"MHA.O: got {wide.flat[at]:.9g}, exact {want.flat[at]:.9g}; {int((ratio > 1).sum())} of {got.size} are off by "
                f"more than {relative:.0%} and {absolute}; {BEYOND:.1%} may be."
            )
        return Deviation(float(error[at]), float(limit[at]), float(ratio[at]), got.size)


def _tiles(kind: str, level: Level, columns: int) -> Callable[[int], Tile]:
    """Tiles of a kind by column: one for all streams there, or where they are free one for each stream."""
    pinned = [Tile(kind, column) for column in range(columns)]
    return (lambda column: Tile(kind)) if level is Level.FREE else pinned.__getitem__


def _place(pipeline: Any, stage: str) -> Buffer:
    return Buffer(2, "int32", name=f"place{pipeline}_{stage}", initial_value=PLACE)


def _dealt(name: str, part: ObjectType, dims: Any, lane: Any, memory: Tile, each: int) -> list[Any]:
    """Fifos of a lane's objects: one, or of one that holds `each` side by side, one for each."""
    fifo = ObjectFifo(part if each == 1 else ObjectType.of((each * part.shape[0], part.shape[1]), bfloat16), name=name)
    fifo.prod(tile=lane)
    if each == 1:
        return [fifo.cons().forward(tile=memory, name=f"{name}_held", dims_to_stream=dims)]
    names = [f"{name}_{i}" for i in range(each)]
    offsets = [i * part.elements for i in range(each)]
    return fifo.cons().split(offsets, [part] * each, tile=memory, names=names, dims_to_stream=dims)


def _collected(name: str, part: ObjectType, dims: Any, lane: Any, memory: Tile, each: int) -> list[Any]:
    """Fifos of blocks of outputs, one per pipeline of a lane."""
    names = [f"{name}_{i}" for i in range(each)]
    if each == 1:
        one = ObjectFifo(part, name=names[0])
        one.cons().forward(tile=memory, name=name, dims_to_stream=dims).cons(tile=lane)
        return [one]
    fifo = ObjectFifo(ObjectType.of((each * part.shape[0], part.shape[1]), bfloat16), name=name, dims_to_stream=dims)
    fifo.cons(tile=lane)
    return fifo.prod().join([i * part.elements for i in range(each)], [part] * each, tile=memory, names=names)
