"""`Gather`: rows of a table by ids that are known when a call is made, as words that write descriptors.

A shim tile's registers can be written by what is streamed into its control port. So the ids of a call become, on the host,
a tensor of control packets: they write the table rows' addresses into descriptors of a shim and start them.

A packet is a header and one to four data words, written to consecutive registers:

    bits 19..0 the first register's address, 21..20 data words less 1, 23..22 the operation (0: write), 31 parity

Bit 31 makes the number of ones odd. Descriptor n of a shim has eight registers from DESCRIPTOR_REGISTERS + DESCRIPTOR_STEP * n
on; a channel's queue takes the first descriptor of a chain in bits 3..0 and, in bit 31, whether a token tells of the chain's end.

A feed's words: both sets of descriptors, then batch after batch; batch j rewrites the addresses of set j % 2 and starts it.
So batch j must not be sent before batch j - 2 is done, which its token says.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from iron_core.declare.pattern import Pattern
from iron_core.devices import CONTROL_REGISTER, DESCRIPTOR_REGISTERS, DESCRIPTOR_STEP, NEXT_CHANNEL
from iron_core.errors import ParamError

#: The channel packets start, and the id its tokens carry (a shim's, in bits 15..8 of its control register).
CHANNEL, TOKENS = 1, 15 << 8
#: Descriptors of a set, and sets.
BATCH, SETS = 8, 2
TOKEN = 1 << 31
#: Fields of a descriptor's words.
_BURST, _CACHE, _VALID, _CHAINED, _NEXT = 1 << 30, 2 << 24, 1 << 25, 1 << 26, 27


def packet(address: int, *words: int) -> list[int]:
    """A control packet: `words` (one to four) into the registers from `address` on."""
    if not 1 <= len(words) <= 4 or address % 4:
        raise ParamError(f"a control packet of {len(words)} words to {address:#x}; legal: 1 to 4 words to a multiple of 4.")
    header = (len(words) - 1) << 20 | address
    return [header | (header.bit_count() + 1) % 2 << 31, *words]


@attrs.frozen
class Gather:
    """Which rows are gathered and by how many feeds. `table`: the operand; a row is `row_bytes`, whole 4-byte words.

    `words` is the length of the tensor of control packets; `parts` says how it is sent.
    """

    table: str
    table_rows: int
    rows: int
    row_bytes: int
    feeds: int

    def share(self, feed: int) -> tuple[int, int]:
        """First row of a feed and how many: whole batches, one more at the first feeds where they do not divide."""
        each, more = divmod(-(-self.rows // BATCH), self.feeds)
        start, stop = (BATCH * (k * each + min(k, more)) for k in (feed, feed + 1))
        return min(start, self.rows), min(stop, self.rows) - min(start, self.rows)

    def batches(self, feed: int) -> list[int]:
        """Rows of each of a feed's batches."""
        _, count = self.share(feed)
        return [min(BATCH, count - at) for at in range(0, count, BATCH)]

    def parts(self, feed: int) -> list[tuple[int, int]]:
        """Where each batch's words begin in the tensor, and how many there are. The first has both sets before it."""
        at = sum(self._length(other) for other in range(feed))
        found = []
        for number, rows in enumerate(self.batches(feed)):
            count = self._words(rows) + (len(self._sets()) if number == 0 else 0)
            found.append((at, count))
            at += count
        return found

    @property
    def words(self) -> int:
        """How long the tensor of control packets is."""
        return sum(self._length(feed) for feed in range(self.feeds))

    def _length(self, feed: int) -> int:
        return sum(self._words(rows) for rows in self.batches(feed)) + (len(self._sets()) if self.batches(feed) else 0)

    def _words(self, rows: int) -> int:
        # An address is two words, the end of a short chain one, a start two; each with its header.
        return 3 * rows + (2 if rows < BATCH else 0) + 3

    def _sets(self) -> list[int]:
        """Packets that write every descriptor, but for the addresses."""
        made = []
        for number in range(SETS * BATCH):
            last = number % BATCH == BATCH - 1
            link = 0 if last else _CHAINED | (number + 1) << _NEXT
            at = DESCRIPTOR_REGISTERS + DESCRIPTOR_STEP * number
            made += packet(at, self.row_bytes // 4, 0, 0, 0)
            made += packet(at + 16, _BURST, _CACHE, 0, _VALID | link)
        return made

    def slots(self, feed: int) -> list[Pattern]:
        """Where a feed's addresses are in the tensor, two words each, the low one first, in the order of its rows."""
        full, rest = divmod(self.share(feed)[1], BATCH)
        at = sum(self._length(other) for other in range(feed))
        first, batch = at + len(self._sets()) + 1, self._words(BATCH)
        found = [Pattern(first, (full, BATCH, 2), (batch, 3, 1))] if full else []
        return found + ([Pattern(first + full * batch, (rest, 2), (3, 1))] if rest else [])

    def template(self) -> np.ndarray:
        """The tensor (uint32), but for the addresses, which are 0."""
        made: list[int] = []
        for feed in range(self.feeds):
            for number, rows in enumerate(self.batches(feed)):
                if number == 0:
                    made += self._sets()
                first = number % SETS * BATCH
                for k in range(rows):
                    made += packet(DESCRIPTOR_REGISTERS + DESCRIPTOR_STEP * (first + k) + 4, 0, 0)
                if rows < BATCH:
                    made += packet(DESCRIPTOR_REGISTERS + DESCRIPTOR_STEP * (first + rows - 1) + 28, _VALID)
                made += packet(CONTROL_REGISTER + NEXT_CHANNEL * CHANNEL, TOKENS, TOKEN | first)
        return np.array(made, np.uint32)

    def addresses(self, ids: Any, address: int) -> np.ndarray:
        """(rows, 2) uint32: the address of each row of these ids (an integer each; negative from the end, clipped to the table).

        address: of the table's first byte, as the shims see it, below 2**48.
        """
        flat = np.asarray(ids).reshape(-1)
        if flat.size != self.rows or flat.dtype.kind not in "iu":
            raise ParamError(f"{flat.size} ids of {flat.dtype}; a gather of {self.rows} rows takes that many integers.")
        if address % 4 or not 0 <= address <= (1 << 48) - self.table_rows * self.row_bytes:
            raise ParamError(f"address={address:#x} of the table; legal: multiples of 4 below 2**48.")
        at = np.clip(flat.astype(np.int64), -self.table_rows, self.table_rows - 1) % self.table_rows
        places = address + at * self.row_bytes
        return np.stack([places & 0xFFFFFFFF, places >> 32], -1).astype(np.uint32)

    def control_words(self, ids: Any, address: int) -> np.ndarray:
        """The tensor (uint32) for these ids; see `addresses`."""
        return self.placed(self.addresses(ids, address), self.template())

    def placed(self, addresses: np.ndarray, words: Any) -> np.ndarray:
        """A copy of the tensor with these addresses, (rows, 2) uint32, in their places."""
        words, row = np.array(words).reshape(-1), 0
        for feed in range(self.feeds):
            for slots in self.slots(feed):
                there = slots.view(words)
                there[...] = addresses[row : row + there.size // 2].reshape(there.shape)
                row += there.size // 2
        return words
