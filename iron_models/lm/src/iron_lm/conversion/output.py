"""`Output`: a checkpoint to be written, its tensors made one after another."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs
import numpy as np

from iron_core.errors import DeclarationError
from iron_core.plugins.foreign import kind_of


@attrs.frozen(eq=False)
class Piece:
    """A tensor of the weights' file: `nbytes` bytes, which `parts()` gives in order, some at a time (uint8), the same ones at every
    call."""

    name: str
    nbytes: int
    parts: Callable[[], Iterable[np.ndarray]]


def _several(given: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(given)


@attrs.frozen(eq=False)
class Weights:
    """A file of weights: its name, a header, and then the pieces."""

    name: str
    header: bytes
    pieces: tuple[Piece, ...] = attrs.field(converter=_several)


@attrs.frozen(eq=False)
class Output:
    """A folder: small files by name, and one with the weights, which is a header and then the pieces; `more` such files behind it.

    A reader of `iron.checkpoints.v1` that has `converted(checkpoint)`, which gives one of these, is a format that
    `iron checkpoints convert` writes. CheckpointError where it cannot hold that checkpoint; DeclarationError for a name that is no
    file's in the folder, or two files', and for parts of another kind.
    """

    files: Mapping[str, bytes]
    weights: str
    header: bytes
    pieces: tuple[Piece, ...] = attrs.field(converter=_several)
    more: tuple[Weights, ...] = attrs.field(default=(), converter=_several)

    def __attrs_post_init__(self) -> None:
        for i, one in enumerate(self.more):
            if not isinstance(one, Weights):
                raise DeclarationError(f"Output: more[{i}] is {kind_of(one)}; legal: Weights.")
        for name in (*self.files, *self.names):
            if not isinstance(name, str) or name != os.path.basename(name) or name.startswith(".") or not name:
                raise DeclarationError(f"Output: a file called {name!r}; legal: a name in the folder, which begins with no dot.")
        if self.weights in self.files:
            raise DeclarationError(f"Output: weights={self.weights!r} is one of files= too; legal: a name of its own.")
        for i, one in enumerate(self.more):
            if one.name in self.files or one.name in self.names[: i + 1]:
                raise DeclarationError(f"Output: more[{i}] is called {one.name!r}, as another file is; legal: a name of its own.")
        kinds: list[tuple[str, Any, type]] = [("header", one.header, bytes) for one in self.containers]
        kinds += [(f"files[{name!r}]", data, bytes) for name, data in self.files.items()]
        kinds += [(f"pieces[{i}]", piece, Piece) for i, piece in enumerate(self.every)]
        for what, given, kind in kinds:
            if not isinstance(given, kind):
                raise DeclarationError(f"Output: {what} is {kind_of(given)}; legal: {kind.__name__}.")

    @property
    def containers(self) -> tuple[Weights, ...]:
        """Its files of weights, in the order in which they are written."""
        return (Weights(self.weights, self.header, self.pieces), *self.more)

    @property
    def names(self) -> tuple[str, ...]:
        """Of its files of weights."""
        return (self.weights, *(one.name for one in self.more))

    @property
    def every(self) -> tuple[Piece, ...]:
        """The pieces of all its files of weights."""
        return tuple(piece for one in self.containers for piece in one.pieces)

    @property
    def nbytes(self) -> int:
        """Bytes of all its files."""
        headers = sum(len(one.header) for one in self.containers)
        return headers + sum(piece.nbytes for piece in self.every) + sum(map(len, self.files.values()))
