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

import attrs
import numpy as np

from iron_core import Pattern, bfloat16
from iron_core.declare.rounding import round_to
from iron_core.declare.tolerance import Deviation
from iron_core.devices import ITERATIONS, REPEATS
from iron_core.errors import DeviationError, Unresolvable
from iron_ops_aie.kernels_mha import LEAST_SCALE, PLACE, AttentionKernels, exponent_scale
from iron_ops_aie.kernels_mm import MM_STACK
from iron_ops_aie.mha_cores import Walk, pv_core, qk_core, softmax_core

#: Sizes of a block of queries, and of a block of keys.
BLOCKS = (64, 32, 16)
#: The kernels take heads of a multiple of this many numbers.
HEAD_STEP = 64
#: Pipelines that one memory tile serves with queries, and collects outputs from.
SERVED = 6
PIPELINES = 8
#: Memory of a core, in bytes.
CORE_BYTES = 64 * 1024
#: The gate: how far off a number may be, and the share of those that may be further.
RELATIVE, ABSOLUTE, BEYOND = 0.04, 0.15, 0.005


# -- tunables ----------------------------------------------------------------------------------------


def resolve(op: Any, dev: Any) -> Any:
    """Tunables for a device: the blocks and pipelines that take the least time; any where none fit (`compatible` says why)."""
    if not dev.is_npu:
        raise Unresolvable(f"MHA: dev={dev} has no array. Legal: npu1, npu2 and their column variants.")
    packed = op.seq_len == 1
    group = op.num_heads // op.num_KV_heads
    found = []
    for b in (op.B_q,) if op.B_q else BLOCKS:
        for p in (op.num_pipelines,) if op.num_pipelines else range(1, PIPELINES + 1):
            if _divides(op, b, p, packed, group) is None and _places(p, packed, dev.columns) is not None:
                # Every block costs as much again as about 500 of its numbers; one query has nothing to gain from a larger one.
                found.append((b if packed else 0, (1 + 512 / b**2) / p, -b, p))
    least = next((b for b in reversed(BLOCKS) if b >= group), BLOCKS[0]) if packed else BLOCKS[-1]
    b, p = (-min(found)[2], min(found)[3]) if found else (op.B_q or least, op.num_pipelines or 1)
    return op.evolve(
        kv_len=op.kv_len,
        B_q=b,
        num_pipelines=p,
        packed=packed,
        q_lanes=_q_lanes(p),
        kv_lanes=p if packed else 1,
        o_rows=group if packed else b,
    )


def compatible(op: Any) -> None:
    """Unresolvable where the array has no such arithmetic, the extents are not whole blocks, or a core has no room."""
    for name in ("T", "C"):
        if getattr(op, name) != bfloat16:
            raise Unresolvable(f"MHA: {name}={getattr(op, name)}; its array computes on bfloat16. Legal: T and C=bfloat16.")
    if exponent_scale(op.scale) < LEAST_SCALE:
        raise Unresolvable(f"MHA: scale={op.scale}; its array hides keys by very low scores. Legal: at least {LEAST_SCALE}.")
    words = _divides(op, op.B_q, op.num_pipelines, op.packed, op.num_heads // op.num_KV_heads)
    if words is not None:
        raise Unresolvable(f"MHA: {words}")


def _divides(op: Any, b: int, p: int, packed: bool, group: int) -> str | None:
    """The rule these blocks and pipelines break; None where they fit."""
    if op.d % HEAD_STEP:
        return f"d={op.d}; its kernels take multiples of {HEAD_STEP}. Nearest legal d: {_nearest(op.d, HEAD_STEP)}."
    if b not in BLOCKS:
        return f"B_q={b}; legal: {', '.join(map(str, sorted(BLOCKS)))}."
    if op.kv_len % b:
        return f"kv_len={op.kv_len} is not whole blocks of B_q={b} keys. Nearest legal kv_len: {_nearest(op.kv_len, b)}."
    if not 1 <= p <= PIPELINES or p % _q_lanes(p):
        return f"num_pipelines={p}; legal: 1 to {SERVED}, and {PIPELINES}."
    if packed and group > b:
        return f"{group} heads share a key head, and a block has B_q={b} rows. Legal: at most {BLOCKS[0]}, and B_q= as many."
    if packed and (op.num_KV_heads % p or p > SERVED):
        return f"num_KV_heads={op.num_KV_heads} do not divide over num_pipelines={p}. Legal: a divisor of at most {SERVED}."
    if not packed and op.seq_len % (b * p):
        return (
            f"seq_len={op.seq_len} is not whole blocks of B_q={b} over num_pipelines={p}. Nearest legal seq_len: "
            f"{_nearest(op.seq_len, b * p)}; or give B_q= or num_pipelines=."
        )
    used, stage = max((used, stage) for stage, used in core_bytes(b, op.d, group if packed else 0).items())
    if used > CORE_BYTES:
        return f"d={op.d}, B_q={b}: the {stage} core needs {used} bytes of its {CORE_BYTES}. Give a smaller B_q= or d."
    return None


def core_bytes(b: int, d: int, packed_rows: int = 0) -> dict[str, int]:
    """What each core of a pipeline holds, in bytes: objects two deep (outputs one), buffers, words and stack."""
    state, words = 4 * 4 * b, 16 + 8
    kept = 2 * b * d + (2 * packed_rows * d if 0 < packed_rows < b else 0)
    return {
        "QK": 2 * 2 * (2 * b * d + b * b) + words + MM_STACK,
        "softmax": 2 * 2 * 2 * b * b + 3 * state + words + MM_STACK,
        "PV": 2 * 2 * (b * b + b * d) + kept + 4 * b * d + 2 * state + words + MM_STACK,
    }


def _q_lanes(p: int) -> int:
    return 1 if p <= SERVED else 2


def _nearest(n: int, unit: int) -> str:
    below, above = n // unit * unit, -(-n // unit) * unit
    return str(above) if below < 1 or below == above else f"{below} or {above}"


def blocks_of_keys(op: Any) -> Any:
    """Blocks that hold the valid keys, and one where there are none: `max(1, ceil(kv_valid / B_q))` as one quotient.

    Its steps are longer than B_q by so little that over all blocks it adds up to one key: so none differs but at 0.
    """
    most = op.kv_len // op.B_q
    return op.kv_valid * most // (op.B_q * most + 1) + 1


# -- where things are --------------------------------------------------------------------------------


@attrs.frozen
class Places:
    """Columns of the memory tile and shim of every lane."""

    q: tuple[int, ...]
    o: tuple[int, ...]
    k: tuple[int, ...]
    v: tuple[int, ...]


def _places(p: int, packed: bool, columns: int) -> Places | None:
    """Columns for the lanes of p pipelines, which stand in columns 0 to p - 1; None where there is no room.

    A memory tile has six channels each way, two of which a pipeline's scores and weights take; a shim has two each way.
    """
    if p > columns:
        return None
    arriving = {c: 4 if c < p else 6 for c in range(columns)}
    leaving, fills, drains = dict(arriving), dict.fromkeys(range(columns), 2), dict.fromkeys(range(columns), 2)

    def take(into: int, out: int, shim: dict[int, int], at: int | None = None) -> int | None:
        fit = [
            c for c in range(columns) if at in (None, c) and arriving[c] >= into and leaving[c] >= out and shim[c] > 0
        ]
        if not fit:
            return None
        best = max(fit, key=lambda c: (arriving[c] + leaving[c], -c))
        arriving[best] -= into
        leaving[best] -= out
        shim[best] -= 1
        return best

    lanes = _q_lanes(p)
    each = p // lanes
    own: list[int | None] = list(range(p)) if packed else [None]
    k = [take(1, 1, fills, at) for at in own] if packed else []
    v = [take(1, 1, fills, at) for at in own] if packed else []
    q = [take(1, each, fills) for _ in range(lanes)]
    o = [take(each, 1, drains) for _ in range(lanes)]
    if not packed:
        k, v = [take(1, 1, fills)], [take(1, 1, fills)]
    found = (*q, *o, *k, *v)
    if any(c is None for c in found):
        return None
    return Places(tuple(q), tuple(o), tuple(k), tuple(v))  # type: ignore[arg-type]


# -- the array ---------------------------------------------------------------------------------------


def kernels(op: Any, arch: str) -> AttentionKernels:
    """The kernels of a resolved operator, or of its view."""
    step = 0 if op.packed else 1
    return AttentionKernels(op.B_q, op.d, op.causal, op.window, step, exponent_scale(op.scale), arch)


def array(op: Any, target: Any) -> None:
    """Build it; `op` is the operator's view. See `iron_core.array`."""
    from iron_core.array import Buffer, ObjectFifo, ObjectType, Tile, Worker

    p, b, packed = op.num_pipelines, op.B_q, op.packed
    places = _places(p, packed, target.dev.columns)
    if places is None:
        raise Unresolvable(
            f"MHA: num_pipelines={p} and their streams do not fit the {target.dev.columns} columns of {target.dev}. "
            f"Give a {'smaller num_pipelines= or a ' if p > 1 else ''}wider device."
        )
    k = kernels(op, target.dev.arch)
    columns = target.dev.columns
    shim = [Tile("shim", c, 0) for c in range(columns)]
    memory = [Tile("mem", c, 1) for c in range(columns)]
    each = p // op.q_lanes
    o_type = ObjectType.of((op.o_rows, op.d), bfloat16)
    cut = op.o_rows < b

    queries: list[Any] = []
    outputs: list[Any] = []
    for lane in range(op.q_lanes):
        queries += _dealt(k, op.Q.lane(lane, shim[places.q[lane]]), memory[places.q[lane]], lane, each)
        dims = () if cut else k.given("out")
        outputs += _collected(o_type, dims, op.O.lane(lane, shim[places.o[lane]]), memory[places.o[lane]], lane, each)
    streams: dict[str, list[Any]] = {"K": [], "V": []}
    for name, at in (("K", places.k), ("V", places.v)):
        for lane in range(op.kv_lanes):
            fifo = ObjectFifo(k.tile, name=f"{name}{lane}")
            fifo.prod(tile=getattr(op, name).lane(lane, shim[at[lane]]))
            onward = fifo.cons().forward(tile=memory[at[lane]], name=f"{name}{lane}_held", dims_to_stream=k.held(name.lower()))
            streams[name].append(onward)

    values = [op.passes, op.rounds, op.queries, op.keys]
    for i in range(p):
        walk = Walk(b, p, i, packed, op.causal, op.window)
        scores = ObjectFifo(k.square, name=f"scores{i}")
        lined = scores.cons().forward(tile=memory[i], name=f"scores{i}_rows", dims_to_stream=k.given("scores"))
        weights = ObjectFifo(k.square, name=f"weights{i}")
        held = weights.cons().forward(tile=memory[i], name=f"weights{i}_held", dims_to_stream=k.held("weights"))
        states = ObjectFifo(k.state, name=f"states{i}")
        marks = [Buffer(2, "int32", name=f"place{i}_{stage}", initial_value=PLACE) for stage in range(3)]
        lane = i if packed else 0
        Worker(
            qk_core,
            [walk, queries[i].cons(), streams["K"][lane].cons(), scores.prod(), k.zero_scores(), k.matmul_QK(), marks[0]],
            values=values,
            tile=Tile("core", i, 2),
            name=f"qk{i}",
        )
        state = Buffer(4 * b, "float32", name=f"state{i}")
        ends = [lined.cons(), weights.prod(), states.prod()]
        Worker(
            softmax_core,
            [walk, *ends, k.init_state(), k.hide(), k.softmax(), k.copy_state(), state, marks[1]],
            values=values,
            tile=Tile("core", i, 3),
            name=f"softmax{i}",
        )
        sums = Buffer((b, op.d), "float32", name=f"sums{i}")
        whole = Buffer((b, op.d), bfloat16, name=f"whole{i}") if cut else None
        rows = k.first_rows(op.o_rows) if cut else None
        # The accumulator leaves room for one output only.
        ends = [held.cons(), streams["V"][lane].cons(), states.cons(), outputs[i].prod(depth=1)]
        Worker(
            pv_core,
            [walk, *ends, k.zero_sums(), k.clear("v"), k.clear("out"), k.matmul_PV(), k.rescale(), rows, sums, whole, marks[2]],
            values=values,
            tile=Tile("core", i, 4),
            name=f"pv{i}",
        )


def _dealt(k: AttentionKernels, lane: Any, memory: Any, number: int, each: int) -> list[Any]:
    """Fifos of blocks of queries, one per pipeline of a lane."""
    from iron_core.array import ObjectFifo, ObjectType

    fifo = ObjectFifo(ObjectType.of((each * k.b, k.d), bfloat16), name=f"Q{number}")
    fifo.prod(tile=lane)
    names = [f"Q{number}_{i}" for i in range(each)]
    if each == 1:
        return [fifo.cons().forward(tile=memory, name=names[0], dims_to_stream=k.held("q"))]
    offsets = [i * k.b * k.d for i in range(each)]
    return fifo.cons().split(offsets, [k.tile] * each, tile=memory, names=names, dims_to_stream=k.held("q"))


def _collected(part: Any, dims: Any, lane: Any, memory: Any, number: int, each: int) -> list[Any]:
    """Fifos of blocks of outputs, one per pipeline of a lane."""
    from iron_core.array import ObjectFifo, ObjectType

    names = [f"O{number}_{i}" for i in range(each)]
    if each == 1:
        one = ObjectFifo(part, name=names[0])
        one.cons().forward(tile=memory, name=f"O{number}", dims_to_stream=dims).cons(tile=lane)
        return [one]
    fifo = ObjectFifo(ObjectType.of((each * part.shape[0], part.shape[1]), bfloat16), name=f"O{number}", dims_to_stream=dims)
    fifo.cons(tile=lane)
    return fifo.prod().join([i * part.elements for i in range(each)], [part] * each, tile=memory, names=names)


# -- the sequence ------------------------------------------------------------------------------------


def sequence(op: Any, rt: Any) -> None:
    """Record it. K and V carry, under a bound on the keys, only the blocks that hold some."""
    rt.preamble()
    under_way = _UnderWay()
    (_packed if op.packed else _prompt)(op, rt, under_way)
    while under_way.groups:
        under_way.finish_one()


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
    p, d, group = op.num_pipelines, op.d, op.num_heads // op.num_KV_heads
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
    p, b, d, lanes, group = op.num_pipelines, op.B_q, op.d, op.q_lanes, op.num_heads // op.num_KV_heads
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


# -- the same in numpy -------------------------------------------------------------------------------


def composed(op: Any, Q: Any, K: Any, V: Any, valid: int | None = None, kv_valid: int | None = None) -> np.ndarray:
    """The output as the array rounds it, of the valid queries alone. Operands may be whole or cut to the bounds."""
    # How tiles are held does not show in the numbers, so any architecture's kernels do.
    k, b, group = kernels(op, "AIE2P"), op.B_q, op.num_heads // op.num_KV_heads
    n = op.seq_len if valid is None else valid
    m = op.kv_len if kv_valid is None else kv_valid
    q = (Q.swapaxes(0, 1) if op.heads_interleaved else Q)[:, :n]
    keys, values = (_blocks((x.swapaxes(0, 1) if op.kv_interleaved else x)[:, :m], b) for x in (K, V))
    out = np.zeros(q.shape, bfloat16)
    if op.packed:
        for g in range(op.num_KV_heads if n else 0):
            heads = slice(g * group, (g + 1) * group)
            block = np.resize(q[heads, 0], (b, op.d))
            out[heads, 0] = _attend(k, block, keys[g], values[g], m - 1, m)[:group]
    else:
        padded = _blocks(q, b)
        for h in range(op.num_heads):
            for first in range(0, n, b):
                block = padded[h, first : first + b]
                made = _attend(k, block, keys[h // group], values[h // group], m - n + first, m)
                out[h, first : first + b] = made[: n - first]
    return out.swapaxes(0, 1) if op.heads_interleaved else out


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


# -- its gate ----------------------------------------------------------------------------------------


def check(got: np.ndarray, exact: np.ndarray) -> Deviation:
    """DeviationError if more than `BEYOND` of the numbers are off by more than `RELATIVE` and `ABSOLUTE`, or one is no number.

    The deviation is the worst of those that count.
    """
    wide, want = got.astype(np.float64), exact.astype(np.float64)
    if got.shape != exact.shape:
        raise DeviationError(f"MHA.O: shape {got.shape}, exact {exact.shape}.")
    if not got.size:
        return Deviation()
    error = np.abs(wide - want).ravel()
    limit = np.maximum(RELATIVE * np.abs(want), ABSOLUTE).ravel()
    ratio = np.where(np.isnan(error), np.inf, error / limit)
    order = np.argsort(ratio)
    at = order[-1] if np.isinf(ratio[order[-1]]) else order[-1 - int(BEYOND * got.size)]
    if ratio[at] > 1:
        raise DeviationError(
            f"MHA.O: got {wide.flat[at]:.9g}, exact {want.flat[at]:.9g}; {int((ratio > 1).sum())} of {got.size} are off by more "
            f"than {RELATIVE:.0%} and {ABSOLUTE}; {BEYOND:.1%} may be."
        )
    return Deviation(float(error[at]), float(limit[at]), float(ratio[at]), got.size)
