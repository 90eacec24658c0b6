"""`Tiles`: a block-quantised weight as csrc/blocks.h multiplies it fastest: what it stores in another order, without what fills up
its blocks."""

from __future__ import annotations

import math
from collections.abc import Iterator

import attrs

from iron_core.declare.formats import Format
from iron_host.build import Unit
from iron_host.view import View, view_of

#: Rows of a tile, as blocks.h has it.
ROWS = 16


@attrs.frozen
class Tiles:
    """`matrices` of `rows` x `depth` numbers, `offset` bytes into resident number `resident`, to be had in tiles."""

    resident: int
    offset: int
    format: Format
    rows: int
    depth: int
    matrices: int = 1

    @property
    def nbytes(self) -> int:
        """Bytes of the tiles: rows of zeros fill the last one of a matrix."""
        return self.whole.nbytes

    @property
    def view(self) -> View:
        """The format, as blocks.h has it."""
        found = view_of(self.format)
        assert found is not None and found.blocks
        return found

    @property
    def unit(self) -> Unit:
        """The kernel that makes them."""
        return self.view.unit("pack_blocks")

    @property
    def whole(self) -> Piece:
        """All of it."""
        return Piece(self, self.offset, self.rows, self.matrices)

    def pieces(self, nbytes: int) -> Iterator[Piece]:
        """All of it in order, in pieces of at most `nbytes` bytes of tiles, or of one tile, or one block's rows, where that is more."""
        unit = math.lcm(ROWS, self.format.block[0])  # rows that tiles and blocks both have whole
        most = max(unit, nbytes // self.view.row_bytes(self.depth) // unit * unit)
        for matrix in range(self.matrices):
            at = self.offset + matrix * self.format.nbytes((self.rows, self.depth))
            for row in range(0, self.rows, most):
                yield Piece(self, at + self.format.nbytes((row, self.depth)), min(most, self.rows - row))


@attrs.frozen
class Piece:
    """Some rows of tiles: `rows` from `offset` bytes into the resident on, of `matrices` that follow one another."""

    tiles: Tiles
    offset: int
    rows: int
    matrices: int = 1

    @property
    def nbytes(self) -> int:
        """Bytes of its tiles."""
        return self.matrices * -(-self.rows // ROWS) * ROWS * self.tiles.view.row_bytes(self.tiles.depth)
