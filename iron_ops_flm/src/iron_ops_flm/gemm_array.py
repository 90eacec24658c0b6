"""The array of `flm.GEMM`: four rows of cores by all columns, 64 rows of C by `tile_n` a core at a time, in float32.

A enters row by row on up to four shims; a memory tile splits it over the rows of cores, and a row's cores all read the same of
it. B enters per column, all of whose cores read it. Memory tiles take `k_tile` of K at a time and re-order it into the shares that
cores take; a row of A or B is read in runs of that length. Cores finish their sums eight rows at a time, and a memory tile joins
the four pieces of its column.

M, K, N, the activation and the clamp are words that cores read, so that every shape is the same array. Every column takes the
tiles of C whose number is its own among the columns; where that leaves some columns a tile less, they pass A on.
"""

from __future__ import annotations

import math
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
    range_,
    require,
    require_npu,
    require_whole,
    round_to,
    widen,
)
from iron_core.array.fit import memory, require_memory
from iron_core.array.micro_tiles import product
from iron_ops_flm.kernels_gemm import ProductKernels, exp, finish, zero
from iron_ops_flm.packing import STEP

#: Rows of cores; rows of C that a core makes at a time, and that leave it together.
ROWS, HIGH, PIECE = 4, 64, 8
#: Rows of A that a core may take at a time.
BANDS = (64, 32, 16)

Dims = tuple[tuple[int, int], ...]


class GEMMArray:
    """How a `flm.GEMM` is computed on an array."""

    @property
    def _slices(self: Any) -> int:
        """Shares of a core in a `k_tile`."""
        return int(self.k_tile // self.packing.ct_k)

    # -- tunables ----------------------------------------------------------------------------------

    def resolve(self: Any, dev: Any) -> Any:
        require_npu(self, dev)
        emulated = self.emulate_bf16_mmul_with_bfp16
        columns = self.num_aie_columns or dev.columns
        lanes = min(columns, ROWS)
        twin = self.evolve(
            num_aie_columns=columns,
            emulate_bf16_mmul_with_bfp16=dev.arch == "AIE2P" if emulated is None else emulated,
            n_shim_mem_a=lanes,
            rows_per_shim=ROWS // lanes,
            a_tile=ROWS // lanes * HIGH * self.k_tile,
            b_tile=math.prod(self.W.stored((self.k_tile, self.tile_n))) if self.packed_blocks else self.k_tile * self.tile_n,
            c_tile=ROWS * PIECE * self.tile_n,
        )
        twin._can(dev)
        if self.tile_ma is not None:
            return twin
        bands = (twin.evolve(tile_ma=band) for band in BANDS)
        return next((one for one in bands if all(held.fits for held in memory(one, dev))), twin.evolve(tile_ma=BANDS[-1]))

    def _can(self: Any, dev: Any) -> None:
        """Unresolvable for what the device's cores or columns have no way to do."""
        columns, aie2p = self.num_aie_columns, dev is None or dev.arch == "AIE2P"
        most = columns if dev is None else dev.columns
        legal = [c for c in range(1, most + 1) if c > ROWS or ROWS % c == 0]
        require(
            columns in legal,
            f"GEMM: num_aie_columns={columns}; A's {ROWS} rows of tiles divide over the shims of {dev} that it enters on. Legal: "
            f"{', '.join(map(str, legal))}.",
        )
        require(
            aie2p or not self.packed_blocks,
            f"GEMM: packed_blocks=True on {dev}; bfp16ebs8 is AIE2P's. Legal: packed_blocks=False.",
        )
        require(
            aie2p or not self.emulate_bf16_mmul_with_bfp16,
            f"GEMM: emulate_bf16_mmul_with_bfp16=True on {dev}; bfloat16 is made bfp16 on AIE2P alone. Legal: "
            "emulate_bf16_mmul_with_bfp16=False.",
        )

    def compatible(self: Any, dev: Any) -> None:
        self._can(dev)
        require(self.tile_ma in BANDS, f"GEMM: tile_ma={self.tile_ma}; legal: {', '.join(map(str, BANDS))}.")
        require_whole(self, "M", ROWS * HIGH, f"blocks of {ROWS} rows of {HIGH}")
        require_whole(self, "K", self.k_tile, f"blocks of k_tile={self.k_tile}", "give k_tile= so that K divides")
        require_whole(self, "N", self.tile_n, f"tiles of tile_n={self.tile_n}", "give tile_n= so that N divides")
        if dev is not None:
            require_memory(self, dev, "Give a smaller k_tile= or tile_ma=.")

    # -- how tiles are held --------------------------------------------------------------------------

    def _kernels(self: Any, arch: str) -> ProductKernels:
        by_columns = self.b_col_maj or self.packed_blocks
        return ProductKernels(arch, self.tile_ma, self.packing.ct_k, self.tile_n, self.emulate_bf16_mmul_with_bfp16, by_columns)

    def _a_dims(self: Any, kernels: ProductKernels) -> tuple[Dims, Dims]:
        """How a memory tile writes the A of a row of cores, and sends it its micro tiles: share by share of K."""
        (r, s, _), deep, slices = kernels.micro, kernels.depth, self._slices
        taken = ((HIGH, deep), (slices, HIGH * deep), (deep, 1))
        return taken, ((slices * HIGH // r, r * deep), (deep // s, s), (r, deep), (s, 1))

    def _b_dims(self: Any, kernels: ProductKernels) -> tuple[Dims, Dims]:
        """The same of B. What lies in bfp16 is as cores take it."""
        (_, s, t), deep, wide, slices = kernels.micro, kernels.depth, self.tile_n, self._slices
        if self.packed_blocks:
            return (), ()
        if self.b_col_maj:
            return ((wide, deep), (slices, wide * deep), (deep, 1)), ((slices * wide // t, t * deep), (deep // s, s), (t, deep), (s, 1))
        # Eights of n, each all the share's k, and in an eight the micro tiles' columns beside one another.
        taken: Dims = ()
        if t < STEP:
            taken = ((slices * wide // STEP, STEP * deep), (deep, t), (STEP // t, t * deep), (t, 1))
        return taken, ((slices, wide * deep), (deep // s, s * t), (wide // t, t * deep), (s * t, 1))

    # -- the array ---------------------------------------------------------------------------------

    def array(self: Any, target: Any) -> None:
        columns, wide = self.num_aie_columns, self.tile_n
        kernels = self._kernels(target.dev.arch)
        r, _, t = kernels.micro
        deep, lanes = kernels.depth, self.n_shim_mem_a
        shims = [Tile("shim", column, 0) for column in range(columns)]
        memories = [Tile("mem", column, 1) for column in range(columns)]

        rows = []
        a_taken, a_sent = self._a_dims(kernels)
        a_row, a_part = ObjectType.of(HIGH * self.k_tile, bfloat16), ObjectType.of(self.tile_ma * deep, bfloat16)
        for lane in range(lanes):
            column = lane * (columns // ROWS) if columns % ROWS == 0 else lane
            fifo = ObjectFifo(self.A.tile, name=f"A{lane}")
            fifo.prod(tile=self.A.lane(lane, shims[column]))
            names = [f"A_row{lane * self.rows_per_shim + j}" for j in range(self.rows_per_shim)]
            onward: Any = dict(tile=memories[column], dims_to_stream=a_sent, consumer_type=a_part)
            end = fifo.cons(dims_from_stream=a_taken)
            if len(names) == 1:
                rows.append(end.forward(a_row, name=names[0], **onward))
            else:
                rows += end.split([j * a_row.elements for j in range(len(names))], [a_row] * len(names), names=names, **onward)

        b_dtype = np.dtype(np.uint8) if self.packed_blocks else bfloat16
        b_whole, b_part = ObjectType.of(self.b_tile, b_dtype), ObjectType.of(self.b_tile // self._slices, b_dtype)
        b_taken, b_sent = self._b_dims(kernels)
        c_part = ObjectType.of(PIECE * wide, bfloat16)
        given = ((PIECE // r, r * wide), (r, t), (wide // t, r * t), (t, 1))
        values = [self.n_val, self.m_row_blocks, self.k_iters, self.mode, self.clamp_min, self.clamp_max]
        for column in range(columns):
            fifo = ObjectFifo(b_whole, name=f"B{column}")
            fifo.prod(tile=self.B.lane(column, shims[column]))
            right = fifo.cons(dims_from_stream=b_taken).forward(
                tile=memories[column], name=f"B_col{column}", dims_to_stream=b_sent, consumer_type=b_part
            )
            out = ObjectFifo(self.C.tile, name=f"C{column}", dims_to_stream=given)
            out.cons(tile=self.C.lane(column, shims[column]))
            pieces = out.prod().join(
                [row * c_part.elements for row in range(ROWS)],
                [c_part] * ROWS,
                tile=memories[column],
                names=[f"C{column}_row{row}" for row in range(ROWS)],
            )
            core = self._core(kernels, column)
            for row in range(ROWS):
                sums = Buffer(HIGH * wide, np.float32, name=f"sums{row}_{column}")
                numbers = Buffer(deep * wide, bfloat16, name=f"numbers{row}_{column}") if self.packed_blocks else None
                args = [rows[row].cons(), right.cons(), pieces[row].prod(), sums, numbers]
                Worker(core, args, values=values, tile=Tile("core", column, 2 + row), name=f"core{row}_{column}")

    def _core(self: Any, kernels: ProductKernels, column: int) -> Any:
        """What the cores of a column run: their tiles of each row block; then A that other columns have tiles for is passed."""
        columns, slices, parts = self.num_aie_columns, self._slices, HIGH // self.tile_ma
        part, piece = self.tile_ma * self.tile_n, PIECE * self.tile_n
        mm, clear, made = kernels.mm(), zero(HIGH * self.tile_n), finish(piece, self.rounding, self.gelu)
        expand = kernels.expand() if self.packed_blocks else None

        def core(
            left: Any, right: Any, out: Any, sums: Any, numbers: Any, across: Any, blocks: Any, deep: Any, mode: Any, low: Any, high: Any
        ) -> None:
            most, mine = (across + (columns - 1)) // columns, (across + (columns - 1 - column)) // columns
            for _ in range_(blocks):
                for _ in range_(mine):
                    clear(sums)
                    for _ in range_(deep * slices):
                        b = right.acquire()
                        if expand is not None:
                            expand(b, numbers)
                            b = numbers
                        for band in range_(parts):
                            mm(left.acquire(), b, sums.sub(band * part, part))
                            left.release()
                        right.release()
                    for at in range_(HIGH // PIECE):
                        made(sums.sub(at * piece, piece), out.acquire(), mode, low, high)
                        out.release()
                for _ in range_((most - mine) * deep * (slices * parts)):
                    left.acquire()
                    left.release()

        return core

    # -- the sequence ------------------------------------------------------------------------------

    def sequence(self: Any, rt: Any) -> None:
        """Row block by row block, in parts that A and B are one descriptor each for; what leaves takes one for every tile of C.
        Channels work as far ahead as their queues reach.
        """
        rt.preamble()
        columns, tiles = self.num_aie_columns, self.N // self.tile_n
        most = -(-tiles // columns)

        def single(width: int) -> bool:
            each = dict(A=self._a(0, 0, width), B=self._b(0, 0, width), C=self._c(0, 0))
            return all(rt.single(name, pattern) for name, pattern in each.items())

        width = next(filter(single, sorted({-(-most // parts) for parts in range(1, most + 1)}, reverse=True)), 0)
        require(
            width,
            f"GEMM: K={self.K}, N={self.N}: rows of A, B or C are further apart than a step of a shim's descriptor reaches. Legal: a "
            "smaller K or N.",
        )
        for block in range(self.M // (ROWS * HIGH)):
            for at in range(0, most, width):
                count = min(width, most - at)
                mine = {c: min(count, -(-(tiles - c) // columns) - at) for c in range(columns) if tiles - c > at * columns}
                for lane in range(self.n_shim_mem_a):
                    rt.fill("A", lane, self._a(block, lane, count), managed=False)
                for column, number in mine.items():
                    rt.fill("B", column, self._b(column, at, number), managed=False)
                for turn in range(count):
                    for column, number in mine.items():
                        if turn < number:
                            rt.drain("C", column, self._c(block, (at + turn) * columns + column), managed=False)

    def _a(self: Any, block: int, lane: int, count: int) -> Pattern:
        """A lane's rows of a row block, `k_tile` by `k_tile`, once for each of `count` tiles of C."""
        high = self.rows_per_shim * HIGH
        offset = (block * ROWS * HIGH + lane * high) * self.K
        return Pattern(offset, (count, self.K // self.k_tile, high, self.k_tile), (0, self.k_tile, self.K, 1))

    def _b(self: Any, column: int, at: int, count: int) -> Pattern:
        """A column's tiles of B, `count` from its number `at` on; of blocks in bytes."""
        first, step = at * self.num_aie_columns + column, self.num_aie_columns
        if not self.b_col_maj:
            whole = self.W.nbytes((self.K, self.tile_n)) // self.W.streamed.itemsize
            return Pattern(first * whole, (count, whole), (step * whole, 1))
        whole = self.tile_n * self.K
        return Pattern(first * whole, (count, self.K // self.k_tile, self.tile_n, self.k_tile), (step * whole, self.k_tile, self.K, 1))

    def _c(self: Any, block: int, tile: int) -> Pattern:
        """A tile of C of each row of cores, eight rows of every one at a time."""
        n = self.N
        sizes, strides = (HIGH // PIECE, ROWS, PIECE, self.tile_n), (PIECE * n, HIGH * n, n, 1)
        return Pattern(block * ROWS * HIGH * n + tile * self.tile_n, sizes, strides)

    # -- what it computes --------------------------------------------------------------------------

    def composed(self: Any, A: Any, B: Any) -> Any:
        """C as cores add it up in float32, a share of K and a band of rows at a time."""
        band, deep, wide = self.tile_ma, self.packing.ct_k, self.tile_n
        b = np.asarray(widen(B), np.float32)
        b = b.T if self.b_col_maj else b
        a = np.zeros((-(-self.M // band) * band, self.K), np.float32)
        a[: self.M] = A
        c = np.zeros((len(a), self.N), np.float32)
        mode = "bfp16" if self.emulate_bf16_mmul_with_bfp16 else "bfloat16"
        for i in range(0, len(a), band):
            for j in range(0, self.N, wide):
                for k in range(0, self.K, deep):
                    more = product(a[i : i + band, k : k + deep], b[k : k + deep, j : j + wide], mode)
                    c[i : i + band, j : j + wide] += more
        return round_to(self.finish_of_sums.of(c, exp)[: self.M], bfloat16)

    def array_error(self: Any, A: Any, B: Any) -> np.ndarray:
        """How far from the exact product the array's C may be, float64, per element: a share of the sum of its terms' sizes, more of
        bfp16; as far as the activation moves what is that far off, and two roundings."""
        a, b = widen(A), self._right(B)
        units = 2 + self.K * 2.0**-16
        if self.emulate_bf16_mmul_with_bfp16 or self.packed_blocks:
            units += 2 if self.rounding == "conv_even" else 8
        elif self.rounding == "floor":
            units += 2
        made = self.finish_of_sums
        return 2.0**-8 * (made.steepest * units * (np.abs(a) @ np.abs(b)) + 2 * np.abs(made.of(a @ b)))
