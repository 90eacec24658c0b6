"""`Tensors`: what a reader gives of its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from iron_core import Format
from iron_core.errors import CheckpointError


class Tensors(dict[str, tuple[tuple[int, ...], Format, Any]]):
    """name -> (shape, Format, array over the map).

    `refused`: name -> why, for tensors that Iron does not take. They keep no others from being read; CheckpointError says why
    when one is asked for. `integers`: those of 32 or 64 bits, which are no weights by themselves, and are refused as such.
    `spare`: names of tensors that a model may do without. `notes`: what a family leaves out of it, for people, in their order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.refused: dict[str, str] = {}
        self.integers: dict[str, np.ndarray] = {}
        self.spare: set[str] = set()
        self.notes: dict[str, None] = {}

    def __missing__(self, name: str) -> Any:
        if name in self.refused:
            raise CheckpointError(self.refused[name])
        raise KeyError(name)

    @property
    def names(self) -> set[str]:
        """Of all tensors, those that are refused too."""
        return {*self, *self.refused}

    def join(self, more: Tensors, file: Path) -> None:
        """Take in the tensors of another file of the checkpoint; CheckpointError for a name there is already."""
        twice = self.names & more.names
        if twice:
            raise CheckpointError(f"{file}: tensor {min(twice)} is in another of the checkpoint's files too.")
        self.update(more)
        self.refused.update(more.refused)
        self.integers.update(more.integers)
        self.spare |= more.spare
