"""Unsigned int4 in tiles, as an array's kernels read them: a tile's nibbles, then its bfloat16 scales."""

from __future__ import annotations

from typing import Any

from iron_core import Plane, PlaneQuant
from iron_core.declare.formats import as_format


def int4_tiles(tile: int = 1024, group: int = 32) -> PlaneQuant:
    """The format of rows cut into tiles of `tile` numbers: y = scale * q, q from 0 to 15, a scale for every `group` of them.

    A tile is tile / 2 bytes, number 2k in the low half of byte k and 2k + 1 in the high one, then tile / group scales.
    FormatError where a tile is not whole groups, or not whole bytes.
    """
    name = "int4_tiles" if (tile, group) == (1024, 32) else f"int4_tiles_{tile}_{group}"
    return PlaneQuant(name, block=(1, tile), planes=_planes(group))


def tiled(format: Any) -> bool:
    """Is it a format that `int4_tiles` makes, whatever its name?"""
    found = as_format(format)
    return found.by_rows and bool(found.group) and found.planes == _planes(found.group)


def _planes(group: int) -> tuple[Plane, ...]:
    return Plane("values", "uint4"), Plane("scales", "bfloat16", group=(1, group))


INT4_TILES = int4_tiles()
