"""Tiles: where something is, as far as that is fixed."""

from __future__ import annotations

from typing import Any

import attrs

from iron_core.devices import CORE_ROW, MEMORY_ROW, SHIM_ROW
from iron_core.errors import DeclarationError

KINDS = ("shim", "mem", "core")
#: The row that the tiles of a kind are in; cores are in all those above.
ROWS = {"shim": SHIM_ROW, "mem": MEMORY_ROW}


@attrs.frozen(eq=False)
class Tile:
    """One tile. `col` and `row` are None where the placer is free; two uses of one Tile are on the same tile.

    kind: "shim" (row 0), "mem" (row 1) or "core" (rows 2 and up); rows count from the shim.
    """

    kind: str
    col: int | None = None
    row: int | None = None

    def __attrs_post_init__(self) -> None:
        if self.kind not in KINDS:
            raise DeclarationError(f"Tile({self.kind!r}); legal: {', '.join(KINDS)}.")
        fixed = ROWS.get(self.kind)
        if self.row is not None and (self.row < CORE_ROW if fixed is None else self.row != fixed):
            rule = f"{CORE_ROW} or more" if fixed is None else str(fixed)
            raise DeclarationError(f"Tile({self.kind!r}, row={self.row}): the rows of a {self.kind} tile are {rule}.")


def as_tile(given: Any, part: str) -> Tile | None:
    """The tile= of a part, if it was given one. DeclarationError for what is none."""
    if given is not None and not isinstance(given, Tile):
        legal = "a Tile, as Tile('mem', col=0), or for an end of a fifo an operand's lane, self.x.lane(0)"
        raise DeclarationError(f"{part}: tile={given!r}; legal: {legal}.")
    return given


@attrs.frozen(eq=False)
class Lane:
    """One shim-side end of an operand's stream: give it to `prod(tile=)` or `cons(tile=)` of a fifo.

    tile: the shim tile, where lanes are to share one or are pinned.
    """

    operand: str
    index: int
    tile: Tile | None = None

    def __attrs_post_init__(self) -> None:
        as_tile(self.tile, f"lane {self.index} of {self.operand}")
