"""The initialisers of an ONNX graph as arrays, where they lie: in the file, or in one beside it."""

from __future__ import annotations

import math
from pathlib import Path, PurePosixPath
from typing import Any

import attrs
import numpy as np

from iron_core import bfloat16
from iron_core.errors import CheckpointError
from iron_lm.checkpoints.mapped import MappedFile

#: Numbers of `TensorProto.DataType`: what they are called, bits of one, and the dtype of those that an array holds.
_TYPES: dict[int, tuple[str, int, Any]] = {
    1: ("FLOAT", 32, np.dtype(np.float32)),
    2: ("UINT8", 8, np.dtype(np.uint8)),
    3: ("INT8", 8, np.dtype(np.uint8)),
    6: ("INT32", 32, np.dtype(np.int32)),
    10: ("FLOAT16", 16, np.dtype(np.float16)),
    16: ("BFLOAT16", 16, bfloat16),
    21: ("UINT4", 4, np.dtype(np.uint8)),
    22: ("INT4", 4, np.dtype(np.uint8)),
}
_MOST_AXES = 16


@attrs.frozen(eq=False)
class Initializer:
    """A tensor of a graph. kind: its data type, "INT4", or a number in words for one that is not read."""

    name: str
    kind: str
    shape: tuple[int, ...]
    _proto: Any
    _files: Files

    @property
    def floats(self) -> bool:
        """Is it of floats that are weights?"""
        return self.kind in ("FLOAT", "FLOAT16", "BFLOAT16")

    def array(self) -> np.ndarray:
        """Its numbers in its shape; integers of 8 bits as bytes, of 4 bits two in a byte, flat, the earlier one in the low half.
        CheckpointError where its place is of another size."""
        found: Any = _TYPES.get(self._proto.data_type)
        if found is None:
            raise CheckpointError(f"{self.name} is of {self.kind}. Legal: {', '.join(kind for kind, _, _ in _TYPES.values())}.")
        _, bits, dtype = found
        if len(self.shape) > _MOST_AXES or not all(0 <= n < 1 << 48 for n in self.shape):
            raise CheckpointError(f"{self.name} has shape {str(list(self.shape))[:60]}, which no tensor has.")
        count = math.prod(self.shape)
        size = -(-count * bits // 8)
        data = self._files.data(self._proto, size, dtype)
        if data.size != size:
            raise CheckpointError(f"{self.name}, {self.kind} {list(self.shape)[:4]}, is {size} bytes; its place has {data.size}.")
        return data if bits == 4 else data.view(dtype).reshape(self.shape)


class Files:
    """The folder of an ONNX file, and the files in it that tensors lie in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open: dict[str, MappedFile] = {}

    def initializer(self, proto: Any) -> Initializer:
        """A tensor by its description."""
        kind = _TYPES.get(proto.data_type, (f"data type {proto.data_type}",))[0]
        return Initializer(str(proto.name), kind, tuple(int(n) for n in proto.dims), proto, self)

    def data(self, proto: Any, size: int, dtype: np.dtype) -> np.ndarray:
        """The bytes (uint8) of a tensor, which has so many."""
        if proto.data_location == 1:
            return self._external(proto, size)
        if proto.HasField("raw_data"):
            return np.frombuffer(proto.raw_data, np.uint8)
        if dtype == np.float32:
            return np.array(proto.float_data, np.float32).view(np.uint8)
        if dtype == np.int32:
            return np.array(proto.int32_data, np.int32).view(np.uint8)
        # Numbers of 16 bits and less stand in int32 each; of 4 bits two.
        narrow = np.uint16 if dtype.itemsize == 2 else np.uint8
        return np.array(proto.int32_data, np.int32).astype(narrow).view(np.uint8)

    def _external(self, proto: Any, size: int) -> np.ndarray:
        said = {entry.key: entry.value for entry in proto.external_data}
        location = PurePosixPath(said.get("location", ""))
        if not location.name or location.is_absolute() or ".." in location.parts or not str(location).isprintable():
            raise CheckpointError(f"{proto.name} lies in {str(location)[:60]!r}. Legal: the name of a file beside it.")
        try:
            offset, length = int(said.get("offset", 0)), int(said.get("length", size))
        except ValueError:
            raise CheckpointError(f"{proto.name} lies at {str(said)[:60]!r}, which is no place.") from None
        file = self._open.setdefault(str(location), MappedFile(self.folder / location))
        data = file.view(offset, length, f"tensor {proto.name}")
        return data if offset % 4 == 0 else data.copy()  # the format does not promise alignment
