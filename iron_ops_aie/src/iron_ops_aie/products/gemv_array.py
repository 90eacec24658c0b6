"""The array of `GEMV`: a core and a stream per lane, each with rows of A of its own.

B has no stream: per batch a tile that holds it goes down every lane ahead of the rows. What a chain's steps read besides
their tile rides the same way.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from iron_core import (
    Buffer,
    ObjectFifo,
    Pattern,
    Tile,
    Worker,
    bfloat16,
    nearest,
    range_,
    require,
    require_channels,
    require_columns,
    require_npu,
    require_whole,
    round_to,
)
from iron_core.array.fit import memory, require_memory
from iron_core.declare.link import riding
from iron_core.devices import ITERATIONS, WORD
from iron_ops_aie.products import kernels_mv
from iron_ops_aie.products.kernels_mm import zero
from iron_ops_aie.products.picked import require_none_picked
from iron_ops_aie.products.scales import rounded

#: Banks of a core's memory: a tile of A is to fit one.
BANKS = 4
#: Rows that `resolve()` gives a tile of A and of C at most.
ROWS = 16
ROWS_OUT = 64
#: Numbers that an elementwise kernel takes at most.
LINE = 4096
#: Elements that a descriptor can step over.
STEP = 1 << 21
F32 = np.dtype(np.float32)
CHAINS = ("prepare", "finish")


def vectors(k: int) -> tuple[int, ...]:
    """Vector widths that rows of k numbers are whole multiples of, twice or more."""
    return tuple(v for v in kernels_mv.VECTORS if k % v == 0 and k >= 2 * v)


class GEMVArray:
    """How a `GEMV` is computed on an array."""

    @property
    def lanes(self: Any) -> int:
        """Lanes of A and of C."""
        return self.num_aie_columns * self.num_channels

    def kernel(self: Any) -> Any:
        """The `Kernel` of one tile of A."""
        if self.W == np.int8:
            return kernels_mv.mv_int8(self.tile_size_input, self.K, self.tile_size_output, self.kernel_vector_size, self.O)
        make = kernels_mv.mv_float32 if self.O == np.float32 else kernels_mv.mv
        return make(self.tile_size_input, self.K, self.tile_size_output, self.kernel_vector_size)

    def chain_line(self: Any, chain: str) -> int:
        return self.tile_size_output if chain == "finish" else self.K

    def _calls(self: Any, chain: str, dev: Any = None) -> list[Any]:
        """The calls of a chain's kernels."""
        return [call for link in getattr(self, chain) for call in link.calls(self.chain_line(chain), dev)]

    def _riding(self: Any, chain: str) -> list[str]:
        """The operands that a chain's steps read besides the tile."""
        return [name for step in range(len(getattr(self, chain))) for name in riding(self, chain, step)]

    # -- tunables ----------------------------------------------------------------------------------

    def resolve(self: Any, dev: Any) -> Any:
        require_npu(self, dev)
        require_none_picked(self)
        self._take_dtypes()
        # A column of npu1 has little else to do; npu2's is left a channel for what runs beside.
        several = (self.num_channels,) if self.num_channels else (2, 1) if dev.arch == "AIE2" else (1,)
        vector = self.kernel_vector_size or next(iter(vectors(self.K)), 0)
        widths = (self.num_aie_columns,) if self.num_aie_columns else range(dev.columns, 0, -1)
        for columns, channels in itertools.product(widths, several):
            tiles = self._tiles(columns * channels, dev.core.memory // BANKS)
            if tiles is not None:
                break
        else:
            # Nothing divides: compatible() says what would.
            columns, channels = widths[-1], several[-1]
            tiles = (self.tile_size_input or 1, self.tile_size_output or max(self.tile_size_input or 1, self._unit))
        return self.evolve(
            num_aie_columns=columns,
            num_channels=channels,
            kernel_vector_size=vector,
            tile_size_input=tiles[0],
            tile_size_output=tiles[1],
        )

    def _tiles(self: Any, lanes: int, bank: int) -> tuple[int, int] | None:
        """Rows of a tile of A and of C that divide a lane's rows; None where there are none. As many as a bank holds."""
        rows, rest = divmod(self.M, lanes)
        if rest:
            return None
        most = min(ROWS, max(1, bank // (self.W.itemsize * self.K)), self.tile_size_output or rows)
        # Under a bound a descriptor steps over the tiles of all lanes; what rides behind a tile costs a transfer for each.
        far = min(rows, LINE) if self._riding("finish") else min(ROWS_OUT, STEP // (lanes * self.K))
        for n in (self.tile_size_input,) if self.tile_size_input else range(most, 0, -1):
            outs = (self.tile_size_output,) if self.tile_size_output else range(n, max(far, n) + 1, n)
            # A call can bound C by whole tiles only if they are whole 16-byte units, 8 numbers.
            fits = [(out % 8 == 0, out) for out in outs if out % n == 0 and rows % out == 0 and self._carries(n, out)]
            if fits:
                return n, max(fits)[1]
        return None

    @property
    def _unit(self: Any) -> int:
        """C's tile is a whole number of these: words, or vectors that every step of the finish takes."""
        return max((link.op.line_unit for link in self.finish), default=max(1, WORD // self.O.itemsize))

    def _carries(self: Any, n: int, out: int) -> bool:
        """Is C's tile whole words, a line that its finish's kernels take, and what a tile of A holds a few times?"""
        if out % self._unit or (self.finish and out > LINE):
            return False
        times, rest = divmod(n * self.K, out)
        return not self._riding("finish") or (1 <= times <= ITERATIONS and not rest)

    def _take_dtypes(self: Any) -> None:
        legal: dict[Any, tuple[Any, ...]] = {bfloat16: (bfloat16, F32), np.dtype(np.int8): (np.dtype(np.int32), bfloat16, F32)}
        words = ", ".join(f"T=W={np.dtype(t).name} with O={np.dtype(o).name}" for t, outs in legal.items() for o in outs)
        require(
            self.T == self.W and self.O in legal.get(self.T, ()),
            f"GEMV: T={self.T}, W={self.W}, O={self.O}; its array multiplies others. Legal: {words}.",
        )
        why = "GEMV: rows_scaled=True (row_scale= is given); a core reads A's stream alone. Legal: rows_scaled=False."
        require(not self.rows_scaled, why)

    def compatible(self: Any, dev: Any) -> None:
        self._take_dtypes()
        tile, out, vector, columns = self.tile_size_input, self.tile_size_output, self.kernel_vector_size, self.num_aie_columns
        require_columns(self, dev)
        legal = vectors(self.K)
        least = min(kernels_mv.VECTORS)
        whole = nearest(self.K, range(2 * least, self.K + 2 * least + 1, least))
        require(legal, f"GEMV: K={self.K}; rows are two whole vectors of {least} or more. Nearest legal K: {whole}.")
        split = " or ".join(map(str, legal))
        require(vector in legal, f"GEMV: kernel_vector_size={vector}; rows of K={self.K} split into other vectors. Legal: {split}.")
        require_channels(self)
        unit = max(1, WORD // self.O.itemsize)
        require(
            1 <= tile <= ITERATIONS and out % tile == 0 and out % unit == 0,
            f"GEMV: tile_size_input={tile}, tile_size_output={out}; rows of A are 1 to {ITERATIONS} a tile, and those of C a multiple "
            f"of these, whole {WORD}-byte words. Legal: tile_size_input={min(tile, ITERATIONS)} with "
            f"tile_size_output={unit * min(tile, ITERATIONS)}.",
        )
        self._chains_fit(dev)
        lanes = f"num_aie_columns={columns} x num_channels={self.num_channels} lanes"
        what = f"tiles of tile_size_output={out} rows over {lanes}"
        require_whole(self, "M", self.lanes * out, what, "give tile_size_output= or num_aie_columns=")
        if dev is not None:
            require_memory(self, dev, f"Legal: K={self._longest(dev)}." if tile == 1 else "Legal: a smaller tile_size_input.")

    def _longest(self: Any, dev: Any) -> int:
        """The longest rows that a core has room for, in tiles as they are; whole vectors of the narrowest kind."""
        held, unit = memory(self, dev)[0], kernels_mv.VECTORS[-1]
        lines = self.A.operand.depth * self.tile_size_input + 1 + bool(self.prepare)
        return (self.K - max(0, held.used - held.there) // (lines * self.W.itemsize)) // unit * unit

    def _chains_fit(self: Any, dev: Any) -> None:
        """Unresolvable where a tile is no line for a chain's kernels, or no lane could carry what they read."""
        tile, out = self.tile_size_input * self.K, self.tile_size_output
        require(
            self._carries(self.tile_size_input, out),
            f"GEMV.finish: tile_size_output={out} in a tile of A of {tile} (tile_size_input={self.tile_size_input}). "
            f"Legal: a multiple of {self._unit}, at most {LINE}; where the finish reads another tensor, {tile} divided by 1 to "
            f"{ITERATIONS}.",
        )
        require(
            self.W == bfloat16 or not self._riding("finish"),
            "GEMV.finish: a step reads a tensor besides its tile, and what rides A's stream is int8 as A is. Legal: elementwise steps of "
            "one input.",
        )
        for chain in CHAINS:
            two = next((call for call in self._calls(chain, dev) if len(call.reads) > 1), None)
            require(
                two is None,
                f"GEMV.{chain}: a kernel reads {' and '.join(two.reads) if two else ''} besides its tile, and a core has two input "
                "streams, A's rows and what rides them one by one. Legal: steps that read one tensor besides, or the step by itself.",
            )

    # -- the array ---------------------------------------------------------------------------------

    def array(self: Any, target: Any) -> None:
        chains, out = {chain: self._calls(chain) for chain in CHAINS}, self.tile_size_output

        def chained(chain: str, feed: Any, here: Any, there: Any) -> None:
            """Every kernel from one line to the other and back: they take no line twice."""
            size = self.chain_line(chain)
            for call in chains[chain]:
                others = [feed.acquire().sub(0, size) for _ in call.reads]
                call.kernel(*call.arguments(here, others), there)
                for _ in others:
                    feed.release()
                here, there = there, here

        def ends(chain: str, last: Any, other: Any) -> tuple[Any, Any]:
            """Where a chain starts and where its first step writes, for the last to write `last`."""
            return (other, last) if len(chains[chain]) % 2 else (last, other)

        def core(feed: Any, result: Any, head: Any, product: Any, clear: Any, lines: Any, batches: Any, tiles: Any, *scale: Any) -> None:
            line = lines[0]
            for _ in range_(batches):
                # The feed may not wait for the batch to end, so the line it brings is copied.
                first, second = ends("prepare", line, lines[1])
                head(feed.acquire(), first)
                feed.release()
                chained("prepare", feed, first, second)
                for _ in range_(tiles):
                    first, second = ends("finish", result.acquire(), lines[2])
                    if clear is not None:
                        clear(first)
                    for at in range_(0, out, self.tile_size_input):
                        product(at, feed.acquire(), line, first, *scale)
                        feed.release()
                    chained("finish", feed, first, second)
                    result.release()

        product = self.kernel()
        head = kernels_mv.head(self.tile_size_input, self.K, self.W)
        # Of numbers that have no NaN, a tile that is filled by parts counts as written once all of it was.
        clear = zero(out, self.O) if self.O == np.int32 else None
        shims = [Tile("shim") for _ in range(self.num_aie_columns)]
        values = [self.batches, self.tiles, *([self.scale_bits] if self.scaled else [])]
        for lane in range(self.lanes):
            shim = shims[lane // self.num_channels]
            feed = ObjectFifo(self.A.tile, depth=self.A.depth, name=f"A{lane}")
            feed.prod(tile=self.A.lane(lane, shim))
            result = ObjectFifo(self.C.tile, depth=self.C.depth, name=f"C{lane}")
            result.cons(tile=self.C.lane(lane, shim))
            held = [("line", self.W, self.K), ("prepare", self.W, self.prepare and self.K), ("finish", self.O, self.finish and out)]
            lines = [Buffer(n, dtype, name=f"{name}{lane}") if n else None for name, dtype, n in held]
            args = [feed.cons(), result.prod(), head, product, clear, lines]
            Worker(core, args, values=values, name=f"core{lane}")

    def sequence(self: Any, rt: Any) -> None:
        rt.preamble()
        lanes, rows, out = self.lanes, self.M // self.lanes, self.tile_size_output
        count = rt.length("tiles")
        require(
            count is None or out * 2 % 16 == 0,
            f"GEMV: tile_size_output={out} of {rows} rows per lane; where calls bound M, legal: a multiple of 8. Give "
            "tile_size_output=, or num_aie_columns= that leaves a lane such tiles.",
        )
        # A lane's rows: one run of them; where calls bound M, every lanes-th tile, so that all lanes share what is left.
        tile, tiles, step = (rows, 1, 0) if count is None else (out, rows // out, lanes * out)
        for lane in range(lanes):
            # One drain for all batches: the second could not start before the first is done.
            where = Pattern(lane * tile, (self.num_batches, tiles, tile), (self.M, step, 1))
            rt.drain("C", lane, where, managed=False, size_by=count and (1, count))
        behind, before = self._riding("finish"), self._riding("prepare")
        both = f"GEMV: M is bounded per call, and its finish reads {', '.join(behind)}. Legal: one of the two."
        require(not behind or count is None, both)
        # What rides behind a tile of C comes between its rows and the next tile's.
        parts = rows // out if behind else 1
        for batch in range(self.num_batches):
            start = batch // self.repeat * self.M
            for name in ("B", *before):
                # What every row meets is there once.
                first = batch * self.K if getattr(rt.op, name).size > self.K else 0
                head = Pattern(first, (self.tile_size_input, self.K), (0, 1))
                for lane in range(lanes):
                    rt.fill(name, lane, head, via="A", managed=False)
            for part in range(parts):
                for lane in range(lanes):
                    at, n = lane * tile + part * (tile // parts), tile // parts
                    which = Pattern((start + at) * self.K, (tiles, n * self.K), (step * self.K, 1))
                    rt.fill("A", lane, which, managed=False, size_by=count and (0, count))
                    again = Pattern(batch * self.M + at, (self.tile_size_input * self.K // out, out), (0, 1))
                    for name in behind:
                        rt.fill(name, lane, again, via="A", managed=False)

    def composed(self: Any, A: Any, B: Any, ids: Any = None, row_scale: Any = None) -> Any:
        """Tile by tile of A, in float32, rounded once if at all; which rows share a tile does not depend on lanes or bounds."""
        n = self.tile_size_input
        result = np.empty((self.num_batches, self.M), self.O)
        for b, (matrix, row) in enumerate(self._pairs(A, B)):
            for at in range(0, self.M, n):
                result[b, at : at + n] = self._products(matrix[at : at + n], row[0])
        return result.reshape(self.shape("C"))

    def _products(self: Any, rows: Any, line: Any) -> np.ndarray:
        """Some rows of A times a row of B, as the kernel makes them."""
        if self.W == np.int8:
            sums = kernels_mv.integer_products(rows, line)
            return round_to(rounded(sums, np.float32(self.scale)), self.O) if self.scaled else sums.astype(self.O)
        if self.O == np.float32:
            return kernels_mv.lane_products(rows, line, self.kernel_vector_size)
        return round_to(kernels_mv.products(rows, line), self.O)
