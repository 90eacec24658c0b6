"""The array of `PatchPositions`: one core that counts, a block of places at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import Kernel, KernelContract, ObjectFifo, Out, Param, Pattern, Tolerance, Worker, range_, require_npu, require_whole
from iron_core.array.fit import require_memory
from iron_ops_aie.rules import divisors

#: Places of a block that `resolve()` gives at most.
BLOCK = 64

# A core has no divider for numbers that are not known when this is compiled.
_BLOCK = """
#include <stdint.h>
extern "C" void KERNEL(int32_t rows, int32_t columns, int32_t no_source, int32_t no_position, int32_t first, int32_t *sources,
                       int32_t *positions) {
  // Windows, and rows of `Resample`'s patches for one row of patches.
  const int32_t down = rows / POOL, across = columns / POOL, pad = (columns / CORES + 1) * CORES;
  int32_t column = first / (POOL * POOL), row = 0, patch = first % (POOL * POOL);  // of windows, and in one
  while (column >= across && row < down) {
    column -= across;
    row++;
  }
  for (int i = 0; i < BLOCK; i++) {
    const int32_t x = column * POOL + patch % POOL, y = row * POOL + patch / POOL;
    const bool real = row < down && column < across;
    sources[i] = real ? y * pad + x : no_source;
    positions[i] = real ? x : no_position;
    positions[BLOCK + i] = real ? y : no_position;
    if (++patch < POOL * POOL) continue;
    patch = 0;
    if (++column < across) continue;
    column = 0;
    row++;
  }
}
"""


class PatchPositionsArray:
    """How a `PatchPositions` is computed on an array."""

    def kernel(self: Any) -> Kernel:
        """(rows, columns, no_source, no_position, first, sources, positions): the block of places from `first` on."""
        pool, cores, block = self.pool, self.cores, self.block

        def reference(rows: int, columns: int, no_source: int, no_position: int, first: int) -> tuple[np.ndarray, np.ndarray]:
            down, across, pad = rows // pool, columns // pool, (columns // cores + 1) * cores
            window, patch = np.divmod(first + np.arange(block), pool * pool)
            row, column = np.divmod(window, max(1, across))
            real = window < down * across
            x, y = column * pool + patch % pool, row * pool + patch // pool
            return np.where(real, y * pad + x, no_source), np.where(real, (x, y), no_position)

        contract = KernelContract(roles=(Param,) * 5 + (Out, Out), reference=reference, tolerance=Tolerance(exact=True))
        types = (np.int32,) * 5 + (self.sources.tile, self.positions.tile)
        return Kernel.inline("patch_positions", _BLOCK, types, contract, dict(POOL=pool, CORES=cores, BLOCK=block))

    def resolve(self: Any, dev: Any) -> Any:
        """The largest block of at most 64 places that divides them."""
        require_npu(self, dev)
        return self.evolve(block=self.block or divisors(self.places, BLOCK)[-1])

    def compatible(self: Any, dev: Any) -> None:
        require_whole(self, "places", self.block, f"blocks of block={self.block}", "give block=")
        if dev is not None:
            require_memory(self, dev, "Give a smaller block=.")

    def array(self: Any, target: Any) -> None:
        def core(sources: Any, positions: Any, kernel: Any, *numbers: Any) -> None:
            *sizes, blocks = numbers
            for at in range_(blocks):
                kernel(*sizes, at * self.block, sources.acquire(), positions.acquire())
                sources.release()
                positions.release()

        ends = []
        for stream in (self.sources, self.positions):
            fifo = ObjectFifo(stream.tile, depth=stream.depth, name=stream.name)
            fifo.cons(tile=stream.lane(0))
            ends.append(fifo.prod())
        values = [self.patch_rows, self.patch_columns, self.no_source, self.no_position, self.blocks]
        Worker(core, [*ends, self.kernel()], values=values, name="core")

    def sequence(self: Any, rt: Any) -> None:
        rt.preamble()
        rt.drain("sources", 0, Pattern.whole((self.places,)), wait=True)
        # A block of x, and the block of y that belongs to it.
        blocks = Pattern(0, (self.places // self.block, 2, self.block), (self.block, self.places, 1))
        rt.drain("positions", 0, blocks, wait=True)

    def composed(self: Any) -> Any:
        """Block by block by the kernel's reference."""
        sizes = (self.patch_rows, self.patch_columns, self.no_source, self.no_position)
        made = [self.kernel().reference(*sizes, first) for first in range(0, self.places, self.block)]
        sources, positions = (np.concatenate(parts, axis=-1).astype(np.int32) for parts in zip(*made, strict=True))
        return sources, positions
