"""`Tiles`: a weight in the order in which a kernel multiplies it fastest: in blocks as csrc/tile.h has it, without what fills up its
blocks; dense as csrc/panels.h has it."""

from __future__ import annotations

import math
from collections.abc import Iterator

import attrs

from iron_core.declare.formats import Format
from iron_host.build import Unit
from iron_host.view import View, view_of

#: Rows of a tile, as tile.h has it, and of a panel, as panels.h has it.
ROWS, COLUMNS = 16, 32
#: Tiles that rows of activations meet at once, at most: of tile.h.
TILES = 2


@attrs.frozen
class Tiles:
    """`matrices` of `rows` x `depth` numbers, `offset` bytes into resident number `resident`, to be had in tiles. panels: the kernel
    that makes those of dense ones; None: blocks."""

    resident: int
    offset: int
    format: Format
    rows: int
    depth: int
    matrices: int = 1
    panels: Unit | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the tiles: rows of zeros fill the last one of a matrix."""
        return self.whole.nbytes

    @property
    def view(self) -> View | None:
        """The format, as blocks.h has it; None of a dense one."""
        if self.panels is not None:
            return None
        found = view_of(self.format)
        assert found is not None and found.blocks
        return found

    @property
    def unit(self) -> Unit:
        """The kernel that makes them."""
        view = self.view
        return view.unit("pack_blocks") if view is not None else self.panels  # type: ignore[return-value]  # one or the other

    @property
    def height(self) -> int:
        """Rows of a tile."""
        return COLUMNS if self.view is None else ROWS

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of a tile. Bfloat16 lies there in pairs."""
        if (view := self.view) is not None:
            return view.row_bytes(self.depth)
        size = self.format.dtype.itemsize
        return int(size * (self.depth + (self.depth % 2 if self.format.name == "bfloat16" else 0)))

    @property
    def whole(self) -> Piece:
        """All of it."""
        return Piece(self, self.offset, self.rows, self.matrices)

    def pieces(self, nbytes: int) -> Iterator[Piece]:
        """All of it in order, in pieces of at most `nbytes` bytes of tiles, or of one tile, or one block's rows, where that is more."""
        whole = math.lcm(self.height, self.format.block[0])  # rows that tiles and blocks both have whole
        most = max(whole, nbytes // self.row_bytes // whole * whole)
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
        height = self.tiles.height
        return self.matrices * -(-self.rows // height) * height * self.tiles.row_bytes
