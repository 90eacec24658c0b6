"""`Tiles`: a block-quantised weight as csrc/blocks.h multiplies it fastest, the same bytes in another order."""

from __future__ import annotations

import attrs

from iron_core.declare.formats import BlockQuant
from iron_host.build import Unit

#: Rows of a tile, as blocks.h has it.
ROWS = 16


@attrs.frozen
class Tiles:
    """`matrices` of `rows` x `depth` numbers, `offset` bytes into resident number `resident`, to be had in tiles.

    kind: the format's name in blocks.h.
    """

    resident: int
    offset: int
    format: BlockQuant
    kind: str
    rows: int
    depth: int
    matrices: int = 1

    @property
    def source_bytes(self) -> int:
        """Bytes of the blocks they are made of."""
        return self.matrices * self.rows * self.format.row_bytes(self.depth)

    @property
    def nbytes(self) -> int:
        """Bytes of the tiles: rows of zeros fill the last one of a matrix."""
        return self.matrices * -(-self.rows // ROWS) * ROWS * self.format.row_bytes(self.depth)

    @property
    def unit(self) -> Unit:
        """The kernel that makes them."""
        return Unit("blocks.h", f"pack_blocks<{self.kind}>", f"iron_pack_blocks_{self.kind}")
