"""The array of `GEMM`: four rows of cores by `num_aie_columns`, each core a tile of C at a time, K tile by K tile.

A enters on up to four shims; a memory tile splits it over the rows, and a row's cores all read the same tile of it. B
enters per column and all cores of a column read it. A memory tile joins the four tiles of C of its column. Every stream
always carries everything; what a call's bounds leave out, the cores pass through.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from iron_core import Pattern, bfloat16
from iron_core.declare.rounding import round_to, widen
from iron_core.errors import Unresolvable
from iron_ops_aie.kernels_mm import MM_STACK, MatrixKernels, convert_copy, multiples, product

#: Rows of cores.
ROWS = 4
#: Memory of a core, in bytes; what its buffers leave is the stack's.
CORE_BYTES = 64 * 1024
#: Row blocks a group of transfers carries; two groups are under way at once. Each takes a descriptor of A and B, and at
#: most one of C, so a shim tile holds 12 of its 16, and no queue more than its 4.
GROUP = 2

#: Bytes of the four words that a core reads.
WORDS = 16


# -- tunables ----------------------------------------------------------------------------------------


def resolve(op: Any, dev: Any) -> Any:
    """Tunables for a device. Unresolvable where the arithmetic or the shape has no array."""
    _arithmetic(op)
    if dev is None or not dev.is_npu:
        raise Unresolvable(f"GEMM: dev={dev} has no array. Legal: npu1, npu2 and their column variants.")
    rows, deep, wide = multiples(dev.arch)
    tile_m = op.tile_m or next((t for t in (64, 32, 16, 8) if t % rows == 0 and op.M % (ROWS * t) == 0), None)
    if tile_m is None:
        raise Unresolvable(
            f"GEMM: M={op.M}; on {dev} the array's {ROWS} rows of cores take multiples of {ROWS * rows} rows. "
            f"Nearest legal M: {_nearest(op.M, ROWS * rows)}."
        )
    tile_k = op.tile_k or 64
    fits = (
        t
        for t in (64, 32, 16)
        if t % wide == 0 and op.N % t == 0 and _core_bytes(op.evolve(tile_m=tile_m, tile_k=tile_k, tile_n=t)) <= CORE_BYTES
    )
    tile_n = op.tile_n or next(fits, 64)
    for name, tile, step in (("tile_m", tile_m, rows), ("tile_k", tile_k, deep), ("tile_n", tile_n, wide)):
        if tile < 1 or tile % step:
            raise Unresolvable(
                f"GEMM: {name}={tile}; the kernel of {dev} takes multiples of {step}. Nearest legal: {_nearest(tile, step)}."
            )
    legal = [c for c in range(dev.columns, 0, -1) if c > ROWS or ROWS % c == 0]
    columns = op.num_aie_columns or next((c for c in legal if op.N % (tile_n * c) == 0), 1)
    if columns not in legal:
        raise Unresolvable(
            f"GEMM: num_aie_columns={columns}; legal on {dev}: {', '.join(map(str, reversed(legal)))} (A's {ROWS} rows "
            "of tiles divide over the shims it enters on)."
        )
    lanes = min(columns, ROWS)
    return op.evolve(
        tile_m=tile_m,
        tile_k=tile_k,
        tile_n=tile_n,
        num_aie_columns=columns,
        placement=op.placement or "shims",
        n_shim_mem_a=lanes,
        rows_per_shim=ROWS // lanes,
        c_tile=ROWS * tile_m * tile_n,
    )


def compatible(op: Any) -> None:
    """Unresolvable where the extents are not whole tiles, or the tiles not what a core holds."""
    _arithmetic(op)
    columns = op.num_aie_columns
    for axis, unit, rule, keyword in (
        ("M", ROWS * op.tile_m, f"{ROWS} rows of tile_m={op.tile_m}", "tile_m="),
        ("K", op.tile_k, f"tile_k={op.tile_k}", "tile_k="),
        ("N", op.tile_n * columns, f"tile_n={op.tile_n} on num_aie_columns={columns}", "tile_n= or num_aie_columns="),
    ):
        have = getattr(op, axis)
        if have % unit:
            raise Unresolvable(
                f"GEMM: {axis}={have} is not whole blocks of {rule}, {unit} in all. Nearest legal {axis}: "
                f"{_nearest(have, unit)}; or give {keyword} so that {axis} divides."
            )
    for link in op.finish:
        if link.others:
            raise Unresolvable(
                f"GEMM: a finish of {type(link.op).__name__} has further inputs, and cores hold C in micro tiles, in no order "
                "an input could follow. Legal: elementwise steps of one input."
            )
        link.at_line(op.chain_line("finish"))
    used = _core_bytes(op)
    if used > CORE_BYTES:
        raise Unresolvable(
            f"GEMM: tile_m={op.tile_m}, tile_k={op.tile_k}, tile_n={op.tile_n} take {used} bytes of a core's {CORE_BYTES} "
            f"(with {MM_STACK} of stack{' and a float32 C' if op.prio_accuracy else ''}"
            f"{' and a line for the finish' if op.finish else ''}). Give a smaller tile_k= or tile_n=."
        )


def _arithmetic(op: Any) -> None:
    for name in ("T", "W", "O"):
        if getattr(op, name) != bfloat16:
            raise Unresolvable(f"GEMM: {name}={getattr(op, name)}; its array multiplies bfloat16. Legal: T, W and O=bfloat16.")


def _nearest(n: int, unit: int) -> str:
    below, above = n // unit * unit, -(-n // unit) * unit
    return str(above) if below < 1 or below == above else f"{below} or {above}"


def _core_bytes(op: Any) -> int:
    """A and B two deep, C two deep or, beside a float32 sum, one; a line for a finish; the words and the stack."""
    m, k, n = op.tile_m, op.tile_k, op.tile_n
    c = m * n * (4 + 2) if op.prio_accuracy else 2 * m * n * 2
    line = m * n * 2 if op.finish else 0
    return 2 * (m * k + k * n) * 2 + c + line + WORDS + MM_STACK


# -- the array ---------------------------------------------------------------------------------------


def array(op: Any, target: Any) -> None:
    """Build it; `op` is the operator's view. See `iron_core.array`."""
    from iron_core.array import Buffer, ObjectFifo, ObjectType, Tile, Worker
    from iron_core.declare.domain import Level

    m, k, n, columns = op.tile_m, op.tile_k, op.tile_n, op.num_aie_columns
    accurate = op.prio_accuracy
    kernels = MatrixKernels(
        target.dev.arch, m, k, n, op.b_col_maj, op.c_col_maj, np.dtype(np.float32) if accurate else bfloat16
    )
    # Steps of one input each, so the order in which a tile holds its numbers is all the same to them.
    steps = [link.at_line(m * n).kernel() for link in op.finish]
    pins = type(op).fields["placement"].domain.pins(op.placement)
    shims = [Tile("shim", c, 0) for c in range(columns)]
    memory = [Tile("mem", c if pins.memtiles is Level.TILE else None) for c in range(columns)]
    a_type, b_type, c_type = (ObjectType.of(size, bfloat16) for size in (m * k, k * n, m * n))

    rows = []
    for lane in range(op.n_shim_mem_a):
        column = lane * (columns // ROWS) if columns % ROWS == 0 else lane
        fifo = ObjectFifo(op.A.tile, depth=op.A.depth, name=f"A{lane}")
        fifo.prod(tile=op.A.lane(lane, shims[column]))
        first = lane * op.rows_per_shim
        names = [f"A_row{first + j}" for j in range(op.rows_per_shim)]
        if len(names) == 1:
            rows.append(fifo.cons().forward(a_type, tile=memory[column], name=names[0], dims_to_stream=kernels.held_a()))
        else:
            offsets = [j * m * k for j in range(len(names))]
            types = [a_type] * len(names)
            rows += fifo.cons().split(offsets, types, tile=memory[column], names=names, dims_to_stream=kernels.held_a())

    core = _core(kernels, steps)
    values = [op.n_tiles, op.n_tiles_valid, op.k_tiles, op.k_valid]
    for column in range(columns):
        fifo = ObjectFifo(op.B.tile, depth=op.B.depth, name=f"B{column}")
        fifo.prod(tile=op.B.lane(column, shims[column]))
        right = fifo.cons().forward(b_type, tile=memory[column], name=f"B_col{column}", dims_to_stream=kernels.held_b())
        out = ObjectFifo(op.C.tile, depth=op.C.depth, name=f"C{column}", dims_to_stream=kernels.given_c())
        out.cons(tile=op.C.lane(column, shims[column]))
        parts = out.prod().join(
            [row * m * n for row in range(ROWS)],
            [c_type] * ROWS,
            tile=memory[column],
            names=[f"C{column}_row{row}" for row in range(ROWS)],
        )
        for row in range(ROWS):
            place = Tile("core", column, 2 + row) if pins.cores is Level.TILE else Tile("core")
            total = Buffer(m * n, np.float32, name=f"sum{row}_{column}") if accurate else None
            line = Buffer(m * n, bfloat16, name=f"line{row}_{column}") if steps else None
            # One deep beside a float32 sum: the next tile adds up while this one leaves.
            end = parts[row].prod(depth=1 if accurate else None)
            args = [rows[row].cons(), right.cons(), end, total, line]
            Worker(core, args, values=values, tile=place, name=f"core{row}_{column}")


def _core(kernels: MatrixKernels, steps: list[Any]) -> Any:
    """What every core runs: the tiles of C a call has, in the order of its row blocks, then the rest passed through.

    Steps of a finish go back and forth between the tile that leaves and a line, so that the last one fills the tile.
    """
    from iron_core.array import minimum, range_

    inside = len(steps) % 2 == 1  # what the first step reads is the line
    mm, zero, a_tail, b_tail = kernels.mm(), kernels.zero(), kernels.a_tail(), kernels.b_tail()
    convert = convert_copy(kernels.m * kernels.n)

    def core(left: Any, right: Any, out: Any, total: Any, line: Any, tiles: Any, valid: Any, depth: Any, k_valid: Any) -> None:
        def passed(count: Any) -> None:
            for _ in range_(count):
                left.acquire()
                right.acquire()
                left.release()
                right.release()

        whole, tail = k_valid // kernels.k, k_valid % kernels.k
        part = minimum(tail, 1)
        for _ in range_(valid):
            c = total if total is not None else line if inside else out.acquire()
            zero(c)
            for _ in range_(whole):
                mm(left.acquire(), right.acquire(), c)
                left.release()
                right.release()
            for _ in range_(part):
                a, b = left.acquire(), right.acquire()
                a_tail(a, tail)
                b_tail(b, tail)
                mm(a, b, c)
                left.release()
                right.release()
            passed(depth - whole - part)
            leaving = c if total is None and not inside else out.acquire()
            last, other = (line, leaving) if inside else (leaving, line)
            if total is not None:
                convert(total, last)
            for step in steps:
                step(last, other)
                last, other = other, last
            out.release()
        for _ in range_(tiles - valid):
            out.acquire()
            passed(depth)
            out.release()

    return core


# -- the sequence ------------------------------------------------------------------------------------


def sequence(op: Any, rt: Any) -> None:
    """Row block by row block over all columns. Two groups of transfers are under way; a group is finished, by its drains,
    once the next is started. Every transfer is one descriptor: where a row block is too wide for that, it goes in parts.
    """
    rt.preamble()
    tiles = op.tiles_across
    fits = (
        w for w in _shares(tiles) if all(_single(rt, p) for p in (_a(op, 0, 0, w), _b(op, 0, 0, w), _c(op, 0, 1, 0, 0, w)))
    )
    width = next(fits, 0)
    if not width:
        raise Unresolvable(
            f"GEMM: K={op.K}, N={op.N}: rows of A or of B are further apart than a step of a shim's descriptor reaches. Legal: a "
            "smaller K or N."
        )
    blocks = op.M // (ROWS * op.tile_m)
    parts = [(block, at, min(width, tiles - at)) for block in range(blocks) for at in range(0, tiles, width)]
    pairs = width == tiles and blocks > 1 and _single(rt, _c(op, 0, GROUP, 0, 0, width))
    before = None
    for start in range(0, len(parts), GROUP):
        group = rt.group()
        members = parts[start : start + GROUP]
        for number, (block, at, count) in enumerate(members):
            together = len(members) if pairs else 1
            for column in range(op.num_aie_columns):
                if number == 0 or not pairs:
                    rt.drain("C", column, _c(op, block, together, column, at, count), wait=True, group=group)
            for lane in range(op.n_shim_mem_a):
                rt.fill("A", lane, _a(op, block, lane, count), group=group)
            for column in range(op.num_aie_columns):
                rt.fill("B", column, _b(op, column, at, count), group=group)
        if before is not None:
            before.finish()
        before = group
    if before is not None:
        before.finish()


def _shares(tiles: int) -> list[int]:
    """Ever smaller shares of that many tiles, each in as few parts of nearly equal size as there can be."""
    return sorted({math.ceil(tiles / parts) for parts in range(1, tiles + 1)}, reverse=True)


def _single(rt: Any, pattern: Pattern) -> bool:
    """Does the pattern fit one descriptor of a shim?"""
    from iron_core.array.descriptors import BdLimits, plan
    from iron_core.errors import UnsupportedError

    try:
        plan(pattern, bfloat16.itemsize, BdLimits.of(rt.dev.shim, bfloat16.itemsize), single=True)
    except UnsupportedError:
        return False
    return True


def _a(op: Any, block: int, lane: int, count: int) -> Pattern:
    """A lane's rows of a row block, K tile by K tile, once for every tile of C across."""
    high = op.rows_per_shim * op.tile_m
    offset = (block * ROWS * op.tile_m + lane * high) * op.K
    return Pattern(offset, (count, op.K // op.tile_k, high, op.tile_k), (0, op.tile_k, op.K, 1))


def _b(op: Any, column: int, at: int, count: int) -> Pattern:
    """A column's tiles of B: `count` from number `at` on, each all of K, one K tile after the other."""
    first, step = (at * op.num_aie_columns + column) * op.tile_n, op.num_aie_columns * op.tile_n
    if op.b_col_maj:
        sizes = (count, op.K // op.tile_k, op.tile_n, op.tile_k)
        return Pattern(first * op.K, sizes, (step * op.K, op.tile_k, op.K, 1))
    return Pattern(first, (count, op.K, op.tile_n), (step, op.N, 1))


def _c(op: Any, block: int, blocks: int, column: int, at: int, count: int) -> Pattern:
    """A column's tiles of C in that many row blocks, `count` across from number `at` on."""
    first, step = (at * op.num_aie_columns + column) * op.tile_n, op.num_aie_columns * op.tile_n
    high = ROWS * op.tile_m
    if op.c_col_maj:
        sizes = (blocks, count, ROWS, op.tile_n, op.tile_m)
        return Pattern(first * op.M + block * high, sizes, (high, step * op.M, op.tile_m, op.M, 1))
    return Pattern(block * high * op.N + first, (blocks, count, high, op.tile_n), (high * op.N, step, op.N, 1))


# -- what it computes --------------------------------------------------------------------------------


def composed(op: Any, A: Any, B: Any, valid: int | None = None, valid_k: int | None = None) -> np.ndarray:
    """C as the array adds it up, rounded to bfloat16 after every K tile, or once at the end with prio_accuracy.

    valid, valid_k: the call's bounds; only the valid rows of C are returned. Operands may be whole or cut to the bounds.
    """
    m, k, n = op.tile_m, op.tile_k, op.tile_n
    rows, depth = (op.M if valid is None else valid), (op.K if valid_k is None else valid_k)
    stored = np.dtype(np.float32) if op.prio_accuracy else bfloat16
    a, b = np.zeros((-(-rows // m) * m, -(-depth // k) * k), np.float32), np.zeros((-(-depth // k) * k, op.N), np.float32)
    a[:rows, :depth] = np.asarray(A)[:rows, :depth]
    b[:depth] = (np.asarray(B).T if op.b_col_maj else np.asarray(B))[:depth]
    c = np.zeros((len(a), op.N), bfloat16)
    for i in range(0, len(a), m):
        for j in range(0, op.N, n):
            total = np.zeros((m, n), stored)
            for at in range(0, depth, k):
                more = product(a[i : i + m, at : at + k], b[at : at + k, j : j + n])
                total = round_to(total.astype(np.float32) + more, stored)
            c[i : i + m, j : j + n] = round_to(total, bfloat16)
    return np.ascontiguousarray(c[:rows].T if op.c_col_maj else c[:rows])


def error_bound(op: Any, A: Any, B: Any) -> np.ndarray:
    """How far from the exact product the array's C may be, float64, per element: the roundings to bfloat16 at the end and
    of what is kept between K tiles, twice over, for cores do not add as float32 does."""
    a, b = widen(A), widen(B).T if op.b_col_maj else widen(B)
    kept = np.zeros((len(a), b.shape[1]))
    if not op.prio_accuracy:
        for at in range(op.tile_k, len(b), op.tile_k):
            kept += np.abs(a[:, :at] @ b[:at])
    bound = 2.0**-8 * (2 * np.abs(a) @ np.abs(b) + 2 * kept)
    return bound.T if op.c_col_maj else bound
