"""`Buffer`: local memory of one worker."""

from __future__ import annotations

from typing import Any

from iron_core.array.builder import builder
from iron_core.array.expression import Expr
from iron_core.array.program import Local
from iron_core.array.recording import MemoryHandle, recorder
from iron_core.array.tile import Tile, as_tile
from iron_core.declare.objects import ObjectType


class Buffer(MemoryHandle):
    """Memory of a shape and dtype on the tile of the worker it is given to.

    initial_value: the elements it starts with, flat. use_write_rtp: the runtime sequence writes its words (a parameter block).
    """

    def __init__(
        self,
        shape: Any,
        dtype: Any,
        *,
        name: str | None = None,
        initial_value: Any = (),
        use_write_rtp: bool = False,
        tile: Tile | None = None,
    ) -> None:
        self.name = builder().name(name, "buffer")
        self.initial = tuple(initial_value)
        self.written = use_write_rtp
        self.tile = as_tile(tile, repr(self))
        super().__init__(Local(self.name, ObjectType.of(shape, dtype)))
        builder().buffers.append(self)

    def __getitem__(self, index: Any) -> Expr:
        recorder().owns(self)
        return super().__getitem__(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        recorder().owns(self)
        super().__setitem__(index, value)

    def __repr__(self) -> str:
        return f"Buffer {self.name}"
