"""Weights that are made of a checkpoint's once, and from then on mapped from the cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from iron_core import Format
from iron_core.cache.entry import About
from iron_core.cache.keys import digest, known_sources
from iron_core.cache.store import Cache, optional
from iron_core.errors import CheckpointError
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.checkpoints.identity import identity
from iron_lm.checkpoints.mapped import MappedFile

#: What every tensor begins at a multiple of.
ALIGN = 64
_FILE = "weights.bin"


@attrs.frozen(eq=False)
class Made:
    """A tensor that `make` makes."""

    format: Format
    shape: tuple[int, ...]
    make: Callable[[], Any]

    @property
    def nbytes(self) -> int:
        """Bytes of it."""
        return self.format.nbytes(self.shape)


def made(
    wanted: Mapping[str, Made], what: str, model: Any, checkpoint: Checkpoint | None, package: str
) -> dict[str, Any]:
    """Each of `wanted`, by path. They are kept where there is a checkpoint and the sources of who makes them are known, `package`,
    this one and those that read the checkpoint; then they lie in a mapped file.

    what: they are, for people and in the key. model: what besides the checkpoint decides them, such as the order of rows.
    CheckpointError where a file was written to meanwhile, and what `make` raises.
    """
    if not wanted:
        return {}
    if checkpoint is None:
        return {path: one.make() for path, one in wanted.items()}
    known = identity(checkpoint)
    sources = known_sources("iron_lm", "iron_core", "iron_ops_aie", package, *known.packages)
    if sources is None:
        return {path: one.make() for path, one in wanted.items()}
    key = digest(what, model, sources, known.digest, [(path, one.format.name, one.shape) for path, one in wanted.items()])

    def write(folder: Path) -> None:
        with open(folder / _FILE, "wb") as out:
            for one in wanted.values():
                tensor = one.make()
                array = np.ascontiguousarray(tensor.data if one.format.packed else tensor)
                out.write(array.reshape(-1).view(np.uint8).data)
                out.write(bytes(-array.nbytes % ALIGN))
        if any(file.written_to() for file in known.files):
            raise CheckpointError(f"{checkpoint.path}: it was written to while it was read.")

    with optional():
        folder = Cache("weights").entry(key, write, about=About(what, str(checkpoint.path)))
        return _mapped(folder / _FILE, wanted)
    return {path: one.make() for path, one in wanted.items()}


def _mapped(path: Path, wanted: Mapping[str, Made]) -> dict[str, Any]:
    file, at, found = MappedFile(path), 0, {}
    for name, one in wanted.items():
        found[name] = one.format.tensor(file.view(at, one.nbytes, name), one.shape)
        at += one.nbytes + -one.nbytes % ALIGN
    return found
