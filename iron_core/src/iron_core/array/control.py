"""`ControlFlow`: words that a shim streams into another shim tile's control port."""

from __future__ import annotations

from iron_core.array.builder import builder
from iron_core.array.fifo import ObjectFifo
from iron_core.array.gather import CHANNEL
from iron_core.array.tile import Lane, Tile
from iron_core.errors import DeclarationError


class ControlFlow:
    """What fills `source` is packets (see `iron_core.array.gather`) for the registers of shim tile `target`.

    They drive the channel of `target` that produces `fifo`, which no fill of the sequence does. Both tiles have columns, and
    `target` serves nothing else.
    """

    def __init__(self, source: Lane, target: Tile, fifo: ObjectFifo, *, name: str | None = None) -> None:
        self.name = builder().name(name, "control")
        self.source = source
        self.target = target
        self.fifo = fifo
        self.channel = CHANNEL
        for tile in (source.tile, target):
            if tile is None or tile.kind != "shim" or tile.col is None:
                raise DeclarationError(f"control flow {self.name}: from {source.tile} to {target}; legal: shim tiles with col=.")
        if fifo.producer is None or fifo.producer.tile is not target:
            raise DeclarationError(f"control flow {self.name}: fifo {fifo.name} is not produced on {target}.")
        builder().controls.append(self)
