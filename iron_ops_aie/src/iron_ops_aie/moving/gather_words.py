"""`GatherWords`: ids that a graph made become the addresses of a gather."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import (
    Auto,
    Case,
    In,
    InOut,
    Kernel,
    KernelContract,
    ObjectFifo,
    ObjectType,
    Operator,
    Out,
    Param,
    Pattern,
    Testing,
    Tolerance,
    Value,
    Worker,
    range_,
    require_npu,
)
from iron_core.array.gather import BATCH, Gather
from iron_core.errors import ParamError
from iron_ops_aie.rules import divisors, require_divisor

#: Ids of an object at most.
BLOCK = 512

_ADDRESSES = """
#include <stdint.h>
extern "C" void KERNEL(const int32_t *ids, const uint32_t *table, uint32_t *addresses) {
  for (int32_t i = 0; i < BLOCK; i++) {
    int32_t id = ids[i] < -ROWS ? -ROWS : ids[i] >= ROWS ? ROWS - 1 : ids[i];
    uint64_t at = ((uint64_t)table[1] << 32 | table[0]) + (uint64_t)(id < 0 ? id + ROWS : id) * BYTES;
    addresses[2 * i] = (uint32_t)at;
    addresses[2 * i + 1] = (uint32_t)(at >> 32);
  }
}
"""


class GatherWords(Operator):
    """Write the addresses of a table's rows `ids` into the control words of a gather (see `iron_core.array.gather`).

    ids: (rows,) int32, negative from the end and clipped to the table, as `Copy` takes them. address: (2,) uint32, where the table
    of `table_rows` rows of `row_bytes` bytes begins, the low word first. words: (size,) uint32, of which the two words of every
    row's address are written. `feeds`: how many share the gather.

    No graph calls it: what makes a full ELF of a graph puts it in front of a gather by ids that the graph itself made, and the host
    writes the other words and the table's address once. So the CPU has no kernel for it.

    The array is one core, which turns `block` ids at a time.

    Errors: ParamError for words of another size, rows that are no whole words, or more feeds than batches.
    """

    rows: int = Param()
    table_rows: int = Param(array=True)
    row_bytes: int = Param(array=True)
    feeds: int = Param(default=1)
    size: int = Param(default=lambda op: op.gather.words)
    block: int = Auto()
    ids = In(rows, dtype=np.int32, tile=block)
    address = In(2, dtype=np.uint32, tile=2)
    words = InOut(size, dtype=np.uint32, tile=(block, 2))
    blocks = Value(derive=lambda op: op.rows // op.block)

    test = Testing(
        Case(rows=24, table_rows=64, row_bytes=128, lower=True),
        Case(rows=45, table_rows=7, row_bytes=12, feeds=2, block=9, lower=True),
        Case(rows=1, table_rows=1, row_bytes=4, lower=True),
        Case(rows=1029, table_rows=5000, row_bytes=1024, feeds=4, lower=True),
        draw=lambda op: dict(
            ids=lambda op, rng: rng.integers(-op.table_rows - 2, op.table_rows + 2, op.rows),
            address=lambda op, rng: np.array([rng.integers(1 << 30) * 4, rng.integers(1 << 14)], np.uint32),
            words=op.gather.template(),
        ),
    )

    @property
    def gather(self) -> Gather:
        """The gather whose words these are."""
        return Gather("table", self.table_rows, self.rows, self.row_bytes, self.feeds)

    def validate(self) -> None:
        if min(self.rows, self.table_rows, self.row_bytes) < 1 or self.row_bytes % 4:
            raise ParamError(
                f"GatherWords: rows={self.rows} of table_rows={self.table_rows} with row_bytes={self.row_bytes}; legal: 1 or more, "
                "rows of whole 4-byte words."
            )
        batches = -(-self.rows // BATCH)
        if not 1 <= self.feeds <= batches:
            raise ParamError(f"GatherWords: feeds={self.feeds} for rows={self.rows}; legal: 1 to {batches}, a batch of {BATCH} each.")
        if self.size != self.gather.words:
            raise ParamError(f"GatherWords: words has {self.size} of them; this gather has {self.gather.words}.")

    def reference(self, ids: Any, address: Any, words: Any) -> Any:
        low, high = (int(word) for word in np.asarray(address).reshape(-1))
        return self.gather.placed(self.gather.addresses(ids, high << 32 | low), words)

    def tolerance(self) -> Tolerance:
        return Tolerance(exact=True)

    # -- the array ---------------------------------------------------------------------------------

    def resolve(self, dev: Any) -> Any:
        require_npu(self, dev)
        return self.evolve(block=self.block or max(divisors(self.rows, BLOCK)))

    def compatible(self, dev: Any) -> None:
        require_divisor(self, "block", "rows", BLOCK)

    def kernel(self) -> Kernel:
        """The `Kernel` of one block."""
        rows, each = self.table_rows, self.row_bytes

        def reference(ids: Any, table: Any) -> np.ndarray:
            at = np.clip(np.asarray(ids).astype(np.int64), -rows, rows - 1) % rows
            places = (int(table[1]) << 32 | int(table[0])) + at * each
            return np.stack([places & 0xFFFFFFFF, places >> 32], -1).astype(np.uint32)

        contract = KernelContract(roles=(In, In, Out), reference=reference, tolerance=self.tolerance())
        kinds = (ObjectType.of(self.block, np.int32), ObjectType.of(2, np.uint32), ObjectType.of((self.block, 2), np.uint32))
        return Kernel.inline("gather_words", _ADDRESSES, kinds, contract, dict(BLOCK=self.block, ROWS=rows, BYTES=each))

    def array(self, target: Any) -> None:
        def core(ids: Any, address: Any, words: Any, kernel: Any, blocks: Any) -> None:
            table = address.acquire()
            for _ in range_(blocks):
                kernel(ids.acquire(), table, words.acquire())
                ids.release()
                words.release()
            address.release()

        ends: list[Any] = []
        for name in ("ids", "address"):
            fifo = ObjectFifo(getattr(self, name).tile, name=name)
            fifo.prod(tile=getattr(self, name).lane(0))
            ends.append(fifo.cons())
        words = ObjectFifo(self.words.tile, name="words")
        words.cons(tile=self.words.lane(0))
        Worker(core, [*ends, words.prod(), self.kernel()], values=[self.blocks], name="core")

    def sequence(self, rt: Any) -> None:
        """The slots are drained one run behind another; what feeds them goes out first, for a drain may wait for those before it."""
        rt.preamble()
        rt.fill("address", 0, Pattern.whole((2,)))
        rt.fill("ids", 0, Pattern.whole((self.rows,)))
        for feed in range(self.feeds):
            for slots in self.gather.slots(feed):
                rt.drain("words", 0, slots, managed=False)

    def composed(self, ids: Any, address: Any, words: Any) -> Any:
        """Block by block."""
        kernel = self.kernel()
        blocks = np.asarray(ids).reshape(-1, self.block)
        return self.gather.placed(np.concatenate([kernel.reference(one, np.asarray(address)) for one in blocks]), words)
