"""The array of `GEMM`: four rows of cores by `num_aie_columns`, each core a tile of C at a time, K tile by K tile.

A enters on up to four shims; a memory tile splits it over the rows, and a row's cores all read the same tile of it. B
enters per column and all cores of a column read it. A memory tile joins the four tiles of C of its column. Every stream
always carries everything; what a call's bounds leave out, the cores pass through.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from iron_core import (
    Buffer,
    Level,
    ObjectFifo,
    ObjectType,
    Pattern,
    Tile,
    Worker,
    bfloat16,
    minimum,
    nearest,
    range_,
    require,
    require_npu,
    require_whole,
    round_to,
    widen,
)
from iron_core.array.fit import memory, require_memory
from iron_core.array.micro_tiles import product
from iron_core.errors import Unresolvable
from iron_ops_aie.products.kernels_mm import MatrixKernels, bfp16_error, convert_copy, multiples, scale_copy
from iron_ops_aie.products.picked import require_none_picked
from iron_ops_aie.products.scales import rounded

#: Rows of cores.
ROWS = 4
#: Row blocks a group of transfers carries; two groups are under way at once. Each takes a descriptor of A and B, and at
#: most one of C, so a shim tile holds 12 of its 16, and no queue more than its 4.
GROUP = 2


class GEMMArray:
    """How a `GEMM` is computed on an array."""

    @property
    def tiles_across(self: Any) -> int:
        """Tiles of C in a row block, per column of cores."""
        return self.N // (self.tile_n * self.num_aie_columns)

    def chain_line(self: Any, chain: str) -> int:
        """A core's tile of C."""
        return self.tile_m * self.tile_n

    @property
    def mode(self: Any) -> str:
        """What multiplies: see `MICRO_TILES`."""
        if self.T == np.int8:
            return "int8"
        return "bfp16" if self.emulate_bf16_mmul_with_bfp16 else "bfloat16"

    @property
    def _sums(self: Any) -> Any:
        """The dtype that C has between K tiles."""
        if self.T == np.int8:
            return np.dtype(np.int32)
        return np.dtype(np.float32) if self.prio_accuracy else self.O

    def _take_dtypes(self: Any, dev: Any) -> None:
        floats = (bfloat16, np.dtype(np.float32))
        legal = {bfloat16: floats, np.dtype(np.int8): (np.dtype(np.int32), *floats)}
        words = ", ".join(f"T=W={np.dtype(t).name} with O={np.dtype(o).name}" for t, outs in legal.items() for o in outs)
        require(
            self.T == self.W and self.O in legal.get(self.T, ()),
            f"GEMM: T={self.T}, W={self.W}, O={self.O}; its array multiplies others. Legal: {words}.",
        )
        require(
            not self.prio_accuracy or (self.T, self.O) == (bfloat16, bfloat16),
            f"GEMM: prio_accuracy=True with T={self.T}, O={self.O}, whose sums are never rounded. Legal: prio_accuracy=False.",
        )
        require(
            not self.rows_scaled,
            "GEMM: rows_scaled=True (row_scale= is given); a core's streams are tiles of A and of B, and bring it no numbers of rows. "
            "Legal: rows_scaled=False.",
        )
        emulated = self.emulate_bf16_mmul_with_bfp16
        require(
            not emulated or (self.T == bfloat16 and (dev is None or dev.arch == "AIE2P")),
            f"GEMM: emulate_bf16_mmul_with_bfp16=True for {self.T} on {dev}; bfloat16 is made bfp16 on AIE2P alone. "
            "Legal: emulate_bf16_mmul_with_bfp16=False.",
        )

    def _steps(self: Any, dev: Any = None) -> list[Any]:
        """The kernels of a finish: of one input each, so the order in which a tile holds its numbers does not matter to them."""
        for link in self.finish:
            require(
                not link.others,
                f"GEMM: a finish of {type(link.op).__name__} has further inputs, and cores hold C in micro tiles, in no order "
                "an input could follow. Legal: elementwise steps of one input.",
            )
        return [call.kernel for link in self.finish for call in link.calls(self.chain_line("finish"), dev)]

    # -- tunables ----------------------------------------------------------------------------------

    def resolve(self: Any, dev: Any) -> Any:
        require_npu(self, dev)
        require_none_picked(self)
        self._take_dtypes(dev)
        rows, deep, wide = multiples(dev.arch, self.mode)
        tile_m = self.tile_m or next((t for t in (64, 32, 16, 8) if t % rows == 0 and self.M % (ROWS * t) == 0), None)
        if tile_m is None:
            raise Unresolvable(
                f"GEMM: M={self.M}; on {dev} the array's {ROWS} rows of cores take multiples of {ROWS * rows} rows. "
                f"Nearest legal M: {nearest(self.M, ROWS * rows)}."
            )
        tile_k = self.tile_k or 64
        _multiple(dev, tile_m=(tile_m, rows), tile_k=(tile_k, deep))
        fits = (t for t in (64, 32, 16) if t % wide == 0 and self.N % t == 0 and self._tiled(tile_m, tile_k, t, 1)._fits(dev))
        tile_n = self.tile_n or next(fits, 64)
        _multiple(dev, tile_n=(tile_n, wide))
        legal = [c for c in range(dev.columns, 0, -1) if c > ROWS or ROWS % c == 0]
        columns = self.num_aie_columns or next((c for c in legal if self.N % (tile_n * c) == 0), 1)
        require(
            columns in legal,
            f"GEMM: num_aie_columns={columns}; A's {ROWS} rows of tiles divide over the shims of {dev} that it enters on. Legal: "
            f"{', '.join(map(str, reversed(legal)))}.",
        )
        return self._tiled(tile_m, tile_k, tile_n, columns)

    def _tiled(self: Any, tile_m: int, tile_k: int, tile_n: int, columns: int) -> Any:
        lanes = min(columns, ROWS)
        return self.evolve(
            tile_m=tile_m,
            tile_k=tile_k,
            tile_n=tile_n,
            num_aie_columns=columns,
            placement=self.placement or "shims",
            n_shim_mem_a=lanes,
            rows_per_shim=ROWS // lanes,
            c_tile=ROWS * tile_m * tile_n,
        )

    def _fits(self: Any, dev: Any) -> bool:
        """Do these tiles fit a core?"""
        try:
            return all(held.fits for held in memory(self, dev))
        except Unresolvable:  # a tile is no line for the finish
            return False

    def compatible(self: Any, dev: Any) -> None:
        self._take_dtypes(dev)
        m, k, n, columns = self.tile_m, self.tile_k, self.tile_n, self.num_aie_columns
        for field, unit, what, keyword in (
            ("M", ROWS * m, f"{ROWS} rows of tile_m={m}", "tile_m="),
            ("K", k, f"tile_k={k}", "tile_k="),
            ("N", n * columns, f"tile_n={n} on num_aie_columns={columns}", "tile_n= or num_aie_columns="),
        ):
            require_whole(self, field, unit, f"blocks of {what}", f"give {keyword} so that {field} divides")
        self._steps(dev)
        if dev is not None:
            require_memory(self, dev, "Give a smaller tile_k= or tile_n=.")

    # -- the array ---------------------------------------------------------------------------------

    def array(self: Any, target: Any) -> None:
        m, k, n, columns = self.tile_m, self.tile_k, self.tile_n, self.num_aie_columns
        apart, steps = self._sums != self.O, self._steps()  # are the sums another tile than what leaves?
        kernels = MatrixKernels(target.dev.arch, m, k, n, self.b_col_maj, self.c_col_maj, self._sums, self.mode)
        pins = type(self).fields["placement"].domain.pins(self.placement)
        shims = [Tile("shim", c, 0) for c in range(columns)]
        memory = [Tile("mem", c if pins.memtiles is Level.TILE else None) for c in range(columns)]
        a_type, b_type, c_type = ObjectType.of(m * k, self.T), ObjectType.of(k * n, self.W), ObjectType.of(m * n, self.O)

        rows = []
        for lane in range(self.n_shim_mem_a):
            column = lane * (columns // ROWS) if columns % ROWS == 0 else lane
            fifo = ObjectFifo(self.A.tile, depth=self.A.depth, name=f"A{lane}")
            fifo.prod(tile=self.A.lane(lane, shims[column]))
            names = [f"A_row{lane * self.rows_per_shim + j}" for j in range(self.rows_per_shim)]
            held: Any = dict(tile=memory[column], dims_to_stream=kernels.held_a())
            if len(names) == 1:
                rows.append(fifo.cons().forward(a_type, name=names[0], **held))
            else:
                offsets = [j * m * k for j in range(len(names))]
                rows += fifo.cons().split(offsets, [a_type] * len(names), names=names, **held)

        convert = None if not apart else scale_copy(m * n, self.O) if self.scaled else convert_copy(m * n)
        core = _core(kernels, steps, convert)
        values = [self.n_tiles, self.n_tiles_valid, self.k_tiles, self.k_valid, *([self.scale_bits] if self.scaled else [])]
        for column in range(columns):
            fifo = ObjectFifo(self.B.tile, depth=self.B.depth, name=f"B{column}")
            fifo.prod(tile=self.B.lane(column, shims[column]))
            right = fifo.cons().forward(b_type, tile=memory[column], name=f"B_col{column}", dims_to_stream=kernels.held_b())
            out = ObjectFifo(self.C.tile, depth=self.C.depth, name=f"C{column}", dims_to_stream=kernels.given_c())
            out.cons(tile=self.C.lane(column, shims[column]))
            parts = out.prod().join(
                [row * m * n for row in range(ROWS)],
                [c_type] * ROWS,
                tile=memory[column],
                names=[f"C{column}_row{row}" for row in range(ROWS)],
            )
            for row in range(ROWS):
                place = Tile("core", column, 2 + row) if pins.cores is Level.TILE else Tile("core")
                total = Buffer(m * n, self._sums, name=f"sum{row}_{column}") if apart else None
                line = Buffer(m * n, bfloat16, name=f"line{row}_{column}") if steps else None
                # One deep beside sums of their own: the next tile adds up while this one leaves.
                end = parts[row].prod(depth=1 if apart or target.fifo_depth(m * n, self.O.itemsize) == 1 else None)
                args = [rows[row].cons(), right.cons(), end, total, line]
                Worker(core, args, values=values, tile=place, name=f"core{row}_{column}")

    # -- the sequence ------------------------------------------------------------------------------

    def sequence(self: Any, rt: Any) -> None:
        """Row block by row block over all columns. Two groups of transfers are under way; a group is finished, by its drains,
        once the next is started. Every transfer is one descriptor: where a row block is too wide for that, it goes in parts.
        """
        rt.preamble()
        tiles = self.tiles_across

        def single(width: int) -> bool:
            """Is every transfer of a row block's part, so many tiles across, one descriptor?"""
            each = dict(A=_a(self, 0, 0, width), B=_b(self, 0, 0, width), C=_c(self, 0, 1, 0, 0, width))
            return all(rt.single(name, pattern) for name, pattern in each.items())

        width = next(filter(single, _shares(tiles)), 0)
        require(
            width,
            f"GEMM: K={self.K}, N={self.N}: rows of A or of B are further apart than a step of a shim's descriptor reaches. "
            "Legal: a smaller K or N.",
        )
        blocks = self.M // (ROWS * self.tile_m)
        parts = [(block, at, min(width, tiles - at)) for block in range(blocks) for at in range(0, tiles, width)]
        pairs = width == tiles and blocks > 1 and rt.single("C", _c(self, 0, GROUP, 0, 0, width))
        before = None
        for start in range(0, len(parts), GROUP):
            group = rt.group()
            members = parts[start : start + GROUP]
            for number, (block, at, count) in enumerate(members):
                together = len(members) if pairs else 1
                for column in range(self.num_aie_columns):
                    if number == 0 or not pairs:
                        rt.drain("C", column, _c(self, block, together, column, at, count), wait=True, group=group)
                for lane in range(self.n_shim_mem_a):
                    rt.fill("A", lane, _a(self, block, lane, count), group=group)
                for column in range(self.num_aie_columns):
                    rt.fill("B", column, _b(self, column, at, count), group=group)
            if before is not None:
                before.finish()
            before = group
        if before is not None:
            before.finish()

    # -- what it computes --------------------------------------------------------------------------

    def composed(
        self: Any, A: Any, B: Any, ids: Any = None, row_scale: Any = None, valid: int | None = None, valid_k: int | None = None
    ) -> Any:
        """C as the array adds it up, rounded to its dtype after every K tile, or once at the end with prio_accuracy.

        valid, valid_k: the call's bounds; only the valid rows of C are returned. Operands may be whole or cut to the bounds.
        """
        m, k, n = self.tile_m, self.tile_k, self.tile_n
        rows, depth = (self.M if valid is None else valid), (self.K if valid_k is None else valid_k)
        stored, mode = self._sums, self.mode
        wide = np.float64 if mode == "int8" else np.float32
        a, b = np.zeros((-(-rows // m) * m, -(-depth // k) * k), wide), np.zeros((-(-depth // k) * k, self.N), wide)
        a[:rows, :depth] = np.asarray(A)[:rows, :depth]
        b[:depth] = (np.asarray(B).T if self.b_col_maj else np.asarray(B))[:depth]
        c = np.zeros((len(a), self.N), self.O)
        for i in range(0, len(a), m):
            for j in range(0, self.N, n):
                total = np.zeros((m, n), stored)
                for at in range(0, depth, k):
                    more = product(a[i : i + m, at : at + k], b[at : at + k, j : j + n], mode)
                    total = round_to(total.astype(wide) + more, stored)
                if self.scaled:
                    total = rounded(total, np.float32(self.scale))
                c[i : i + m, j : j + n] = round_to(total, self.O)
        return np.ascontiguousarray(c[:rows].T if self.c_col_maj else c[:rows])

    def array_error(self: Any, A: Any, B: Any, ids: Any = None, row_scale: Any = None) -> np.ndarray | None:
        """How far from the exact product the array's C may be, float64, per element: the roundings to bfloat16 at the end and
        of what is kept between K tiles, twice over, for cores do not add as float32 does; what bfp16 has for A and B. None of
        integers: the contract's."""
        if self.mode == "int8":
            return None
        a, b = widen(A), widen(B).T if self.b_col_maj else widen(B)
        magnitude = np.abs(a) @ np.abs(b)
        if self.O == np.float32:
            bound = (len(b) + 8) * 2.0**-23 * magnitude
        else:
            kept = np.zeros(magnitude.shape)
            if not self.prio_accuracy:
                for at in range(self.tile_k, len(b), self.tile_k):
                    kept += np.abs(a[:, :at] @ b[:at])
            bound = 2.0**-8 * (2 * magnitude + 2 * kept)
        if self.mode == "bfp16":
            left, right = bfp16_error(a, 1), bfp16_error(b, 0)
            bound += left @ (np.abs(b) + right) + np.abs(a) @ right
        return bound.T if self.c_col_maj else bound


def _multiple(dev: Any, **tiles: tuple[int, int]) -> None:
    """Unresolvable unless each of these tunables is a multiple of the step given with it."""
    for name, (tile, step) in tiles.items():
        require(
            tile >= 1 and tile % step == 0,
            f"GEMM: {name}={tile}; the kernel of {dev} takes multiples of {step}. Nearest legal: {nearest(tile, step)}.",
        )


def _core(kernels: MatrixKernels, steps: list[Any], convert: Any) -> Any:
    """What every core runs: the tiles of C a call has, in the order of its row blocks, then the rest passed through.

    convert: makes what leaves of sums that are another tile; it is given the scale, where there is one. Steps of a finish go
    back and forth between the tile that leaves and a line, so that the last one fills the tile.
    """
    inside = len(steps) % 2 == 1  # what the first step reads is the line
    mm, zero, a_tail, b_tail = kernels.mm(), kernels.zero(), kernels.a_tail(), kernels.b_tail()

    def core(left: Any, right: Any, out: Any, total: Any, line: Any, tiles: Any, valid: Any, depth: Any, k_valid: Any, *scale: Any) -> None:
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
                convert(total, last, *scale)
            for step in steps:
                step(last, other)
                last, other = other, last
            out.release()
        for _ in range_(tiles - valid):
            out.acquire()
            passed(depth)
            out.release()

    return core


def _shares(tiles: int) -> list[int]:
    """Ever smaller shares of that many tiles, each in as few parts of nearly equal size as there can be."""
    return sorted({math.ceil(tiles / parts) for parts in range(1, tiles + 1)}, reverse=True)


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
