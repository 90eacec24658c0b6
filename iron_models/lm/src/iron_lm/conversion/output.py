"""`Output`: a checkpoint to be written, its tensors made one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import attrs
import numpy as np


@attrs.frozen(eq=False)
class Piece:
    """A tensor of the weights' file: `nbytes` bytes, which `parts()` gives in order, some at a time (uint8), the same ones at every
    call."""

    name: str
    nbytes: int
    parts: Callable[[], Iterable[np.ndarray]]


@attrs.frozen(eq=False)
class Output:
    """A folder: small files by name, and one with the weights, which is a header and then the pieces.

    A reader of `iron.checkpoints.v1` that has `converted(checkpoint)`, which gives one of these, is a format that
    `iron checkpoints convert` writes. CheckpointError where it cannot hold that checkpoint.
    """

    files: Mapping[str, bytes]
    weights: str
    header: bytes
    pieces: Sequence[Piece]

    @property
    def nbytes(self) -> int:
        """Bytes of all its files."""
        return len(self.header) + sum(piece.nbytes for piece in self.pieces) + sum(map(len, self.files.values()))
