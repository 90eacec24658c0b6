"""What the numbers of a checkpoint are known by: the files that they lie in, and how these are read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import attrs
import numpy as np

from iron_core import PackedArray
from iron_core.cache.keys import FileIdentity, digest
from iron_lm.checkpoints.rearranged import Rearranged
from iron_lm.checkpoints.widening import Merged


@attrs.frozen
class Identity:
    """`files` that tensors lie in, by path. digest: of these, of who reads them, of every tensor's name, format and shape, which may be
    said by who opens it, and of the bytes of those that lie in no file. packages: whose code makes numbers of them, its reader's and
    its formats'."""

    files: tuple[FileIdentity, ...]
    digest: str
    packages: tuple[str, ...]


def identity(checkpoint: Any) -> Identity:
    """That of an open checkpoint."""
    files, loose = set(), hashlib.sha256()
    for _, _, array in checkpoint.tensors.values():
        for part in _parts(array):
            file = origin(part)
            if file is None:
                loose.update(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)
            else:
                files.add(file)
    tensors = [
        (name, str(format), format.planes, tuple(shape), array.how if isinstance(array, Rearranged) else "")
        for name, (shape, format, array) in checkpoint.tensors.items()
    ]
    authors = [checkpoint.file, *(format for _, format, _ in checkpoint.tensors.values())]
    packages = {type(author).__module__.partition(".")[0] for author in authors}
    found = tuple(sorted(files, key=repr))
    return Identity(found, digest(found, checkpoint.reader, tensors, loose.hexdigest()), tuple(sorted(packages)))


def origin(array: np.ndarray) -> FileIdentity | None:
    """The file of the map that an array is a part of; None of one that lies in memory."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return getattr(base.obj if isinstance(base, memoryview) else base, "origin", None)


def _parts(array: Any) -> Iterator[np.ndarray]:
    """The arrays that hold a stored tensor's bytes."""
    if isinstance(array, Merged | Rearranged):
        yield from array.parts
    else:
        yield array.data if isinstance(array, PackedArray) else np.asarray(array)
