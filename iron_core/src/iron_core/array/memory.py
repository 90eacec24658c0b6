"""What the cores and memory tiles of an array hold, in bytes: objects, buffers and stack. The one place where this is added up."""

from __future__ import annotations

import attrs

from iron_core.array.design import ArrayDesign
from iron_core.array.pools import FifoPools, Place, TilePlacement, may_share, place_of
from iron_core.devices import BUFFER_ALIGNMENT, Device


@attrs.frozen
class TileMemory:
    """What one core or memory tile holds. tile: one of its names in the design; parts: (what, bytes), the largest first.

    there: bytes it has.
    """

    tile: str
    kind: str
    worker: str
    parts: tuple[tuple[str, int], ...]
    there: int

    @property
    def used(self) -> int:
        return sum(size for _, size in self.parts)

    @property
    def fits(self) -> bool:
        return self.used <= self.there

    @property
    def listed(self) -> str:
        """Its largest parts, in words."""
        return "; ".join(f"{what}: {size}" for what, size in self.parts[:4]) + ("; ..." if len(self.parts) > 4 else "")


def memory(array: ArrayDesign, dev: Device, found: FifoPools, places: TilePlacement | None = None) -> list[TileMemory]:
    """Every core and memory tile that holds something. places: where tiles are; tiles that share a place are counted as one."""
    together: dict[Place | str, list[str]] = {}
    for tile in array.tiles:
        if tile.kind != "shim":
            together.setdefault(place_of(array, tile.name, places) or tile.name, []).append(tile.name)
    kinds = {tile.name: tile.kind for tile in array.tiles}
    held = []
    for names in together.values():
        kind = kinds[names[0]]
        limit = dev.core if kind == "core" else dev.memtile
        assert limit is not None
        parts = [
            (f"fifo {pool.name}, {pool.depth} x {pool.type}", pool.nbytes if kind == "mem" else pool.depth * _whole(pool.type.nbytes))
            for pool in found.pools
            if pool.tile in names
        ]
        parts += [(f"buffer {b.name}", _whole(b.type.nbytes)) for b in array.buffers if b.tile in names]
        core = next((core for core in array.cores if core.tile in names), None)
        if core is not None:
            parts.append(("its stack", core.stack))
        ordered = tuple(sorted(parts, key=lambda part: -part[1]))
        held.append(TileMemory(names[0], kind, core.name if core else "", ordered, limit.memory))
    return held


def settled(array: ArrayDesign) -> bool:
    """Does what its tiles hold not depend on where they go? True unless two cores may share memory and are not both pinned."""
    return all(
        place_of(array, tile) is not None for fifo in array.fifos if may_share(array, fifo) for tile in fifo.ends()
    )


def _whole(size: int) -> int:
    """Of a core's memory that a buffer of so many bytes takes."""
    return -(-size // BUFFER_ALIGNMENT) * BUFFER_ALIGNMENT
