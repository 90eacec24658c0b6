"""A file mapped into memory, read with every offset checked."""

from __future__ import annotations

import mmap
import os
import stat
from pathlib import Path

import attrs
import numpy as np

from iron_core.cache.keys import FileIdentity, digest
from iron_core.errors import CheckpointError


class Map(mmap.mmap):
    """A mapped file that says which by its `origin`: backends that keep something made of its content know it by that."""

    origin: FileIdentity


class MappedFile:
    """The bytes of a file, mapped read-only. `bytes` is a flat uint8 array over the map."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            if not stat.S_ISREG(os.stat(self.path).st_mode):  # opening a pipe would wait for a writer
                raise CheckpointError(f"{self.path}: not a file.")
            with open(self.path, "rb") as file:
                status = os.fstat(file.fileno())
                size = status.st_size
                if size == 0:
                    raise CheckpointError(f"{self.path}: the file is empty.")
                self._map = Map(file.fileno(), 0, access=mmap.ACCESS_READ)
                self._map.origin = FileIdentity.of(str(self.path), file.fileno())
        except CheckpointError:
            raise
        except OSError as error:
            raise CheckpointError(f"{self.path}: {error.strerror or error}.") from None
        except ValueError as error:  # a NUL in a name
            raise CheckpointError(f"{str(self.path)!r}: {error}.") from None
        self.size = size
        self.bytes = np.frombuffer(self._map, np.uint8)

    def known_by(self, content: str) -> None:
        """Have whatever is kept of the file known by this digest of a part of it, too."""
        origin = self._map.origin
        self._map.origin = attrs.evolve(origin, samples=digest(origin.samples, content))

    def read(self, offset: int, count: int, what: str) -> bytes:
        """`count` bytes at `offset`; CheckpointError if the file ends before."""
        if count < 0 or offset < 0 or offset + count > self.size:
            raise CheckpointError(
                f"{self.path}: {what} needs bytes {offset} to {offset + count}; the file has {self.size}. It is cut short or damaged."
            )
        return self._map[offset : offset + count]

    def view(self, offset: int, count: int, what: str) -> np.ndarray:
        """`count` bytes at `offset` as a uint8 view of the map; CheckpointError if the file ends before."""
        if count < 0 or offset < 0 or offset + count > self.size:
            raise CheckpointError(
                f"{self.path}: {what} lies at bytes {offset} to {offset + count}; the file has {self.size}. It is cut short or damaged."
            )
        return self.bytes[offset : offset + count]
