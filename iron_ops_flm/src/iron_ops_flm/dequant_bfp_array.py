"""The array of `DequantBFP`: four rows of cores by `num_aie_columns`, a tile of 512 x 64 at a time and column.

A memory tile hands the two chunks of either half of a tile's K to two cores, each of which makes its half of them, and puts the
four results one behind another: the order in which `flm.GEMM` takes them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import Q4NX, ObjectFifo, ObjectType, Pattern, Tile, Worker, range_, require, require_columns, require_npu
from iron_ops_flm.kernels_bfp import CHUNKS, HALVES, IN_BYTES, MADE_BYTES, OUT_BYTES, PACKED, READ_BYTES, dequant_bfp

#: Rows of cores.
ROWS = OUT_BYTES // MADE_BYTES


class DequantBFPArray:
    """How a `DequantBFP` is computed on an array."""

    def _take(self: Any, dev: Any) -> None:
        require(
            dev is None or dev.arch == "AIE2P",
            f"DequantBFP: dev={dev}; its cores multiply no block floating point. Legal: dev=npu2, which does.",
        )
        require(self.F == Q4NX, f"DequantBFP: F={self.F}; its array takes FastFlowLM's chunks of scales and minima. Legal: F={Q4NX}.")

    def resolve(self: Any, dev: Any) -> Any:
        """On as many columns as share out the tiles of N."""
        require_npu(self, dev)
        self._take(dev)
        across = self.N // PACKED.block[1]
        return self.evolve(num_aie_columns=self.num_aie_columns or max(c for c in range(1, dev.columns + 1) if across % c == 0))

    def compatible(self: Any, dev: Any) -> None:
        self._take(dev)
        require_columns(self, dev)
        columns, across = self.num_aie_columns, self.N // PACKED.block[1]
        require(
            across % columns == 0,
            f"DequantBFP: num_aie_columns={columns} do not share out {across} tiles of {PACKED.block[1]} along N={self.N}. Legal: "
            f"num_aie_columns={max(c for c in range(1, columns + 1) if across % c == 0)}.",
        )

    def array(self: Any, target: Any) -> None:
        def core(chunks: Any, blocks: Any, kernel: Any, count: Any) -> None:
            for _ in range_(count):
                kernel(chunks.acquire(), blocks.acquire())
                chunks.release()
                blocks.release()

        whole, read, made, tile = (ObjectType.of(n, np.uint8) for n in (IN_BYTES, READ_BYTES, MADE_BYTES, OUT_BYTES))
        for column in range(self.num_aie_columns):
            shim, memory = Tile("shim", column, 0), Tile("mem", column)
            fifo = ObjectFifo(whole, name=f"x{column}")
            fifo.prod(tile=self.x.lane(column, shim))
            offsets = [at * READ_BYTES for at in range(ROWS // HALVES)]
            names = [f"x{column}_{at}" for at in range(len(offsets))]
            parts = fifo.cons().split(offsets, [read] * len(offsets), tile=memory, names=names)
            out = ObjectFifo(tile, name=f"y{column}")
            out.cons(tile=self.y.lane(column, shim))
            rows = [f"y{column}_{row}" for row in range(ROWS)]
            ends = out.prod().join([row * MADE_BYTES for row in range(ROWS)], [made] * ROWS, tile=memory, names=rows)
            for row in range(ROWS):
                args = [parts[row // HALVES].cons(), ends[row].prod(), dequant_bfp(row % HALVES)]
                Worker(core, args, values=[self.tiles], tile=Tile("core", column), name=f"core{row}_{column}")

    def sequence(self: Any, rt: Any) -> None:
        """A column's run of tiles, N's outer: one drain, and a fill for each tile of N, whose chunks lie in rows of their own."""
        rt.preamble()
        deep, wide = self.K // Q4NX.block[1], self.N // PACKED.block[1] // self.num_aie_columns
        run, row = wide * self.K // PACKED.block[0] * OUT_BYTES, deep * Q4NX.block_bytes
        for column in range(self.num_aie_columns):
            rt.drain("y", column, Pattern.whole((run,), column * run), wait=True)
        for step in range(wide):
            for column in range(self.num_aie_columns):
                at = (column * wide + step) * CHUNKS * row
                chunks = Pattern(at, (deep, CHUNKS, Q4NX.block_bytes), (Q4NX.block_bytes, row, 1))
                rt.fill("x", column, chunks, managed=False)

    def composed(self: Any, x: Any) -> Any:
        """Tile by tile, part by part, by the kernel's reference."""
        deep = PACKED.block[0] // Q4NX.block[1]
        chunks = x.data.reshape(self.N // PACKED.block[1], CHUNKS, self.K // PACKED.block[0], deep, Q4NX.block_bytes)
        kernels = [dequant_bfp(half) for half in range(HALVES)]
        parts = [
            kernel.reference(pair.reshape(-1))
            for pair in chunks.transpose(0, 2, 3, 1, 4).reshape(-1, CHUNKS, Q4NX.block_bytes)
            for kernel in kernels
        ]
        return PACKED.tensor(np.concatenate(parts), (self.K, self.N))
