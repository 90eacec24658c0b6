"""The type of what a fifo moves or a buffer holds."""

from __future__ import annotations

import math
from typing import Any

import attrs
import numpy as np

from iron_core.declare.formats import as_format
from iron_core.errors import DeclarationError


@attrs.frozen
class ObjectType:
    """A dense block of elements: `shape` and the name of their dtype."""

    shape: tuple[int, ...]
    dtype_name: str

    @classmethod
    def of(cls, shape: Any, dtype: Any) -> ObjectType:
        """From a shape (or one length) and a dtype. DeclarationError for block formats and empty shapes."""
        dims = tuple(int(n) for n in (shape if isinstance(shape, tuple) else (shape,)))
        if not dims or any(n < 1 for n in dims):
            raise DeclarationError(f"an object of shape {dims}; legal: at least one dimension, each at least 1.")
        format = as_format(dtype)
        if format.packed:
            raise DeclarationError(f"an object of {dtype}; an array moves numbers or bytes. Legal: a dtype such as np.uint8.")
        return cls(dims, format.name)

    @property
    def dtype(self) -> np.dtype:
        return as_format(self.dtype_name).dtype

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.elements * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{'x'.join(map(str, self.shape))} {self.dtype_name}"
