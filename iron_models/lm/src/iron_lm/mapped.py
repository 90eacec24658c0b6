"""A file mapped into memory, read with every offset checked."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import numpy as np

from iron_core.errors import CheckpointError


class MappedFile:
    """The bytes of a file, mapped read-only. `bytes` is a flat uint8 array over the map."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            with open(self.path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size == 0:
                    raise CheckpointError(f"{self.path}: the file is empty.")
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise CheckpointError(f"{self.path}: {error.strerror or error}.") from None
        self.size = size
        self.bytes = np.frombuffer(self._map, np.uint8)

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
