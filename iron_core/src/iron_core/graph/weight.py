"""Weights and states: tensors that live on the device between calls."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from iron_core.declare.formats import Format, PackedArray, as_format, bfloat16, format_of
from iron_core.declare.formats.numbers import is_masked
from iron_core.errors import FormatError, ShapeError, TraceError
from iron_core.graph.current import current


class _Resident:
    """A tensor that lives on the device between calls; in a body it behaves as a handle."""

    shape: tuple[int, ...]
    format: Format
    name: str | None
    data: Any

    def _handle(self) -> Any:
        tracer = current()
        if tracer is None:
            raise TraceError(f"{self!r} is indexed outside a graph body; use it inside body(), or read it from the compiled graph.")
        return tracer.handle(self)

    def __getitem__(self, key: Any) -> Any:
        return self._handle()[key]

    def reshape(self, *shape: Any) -> Any:
        """As `Handle.reshape`."""
        return self._handle().reshape(*shape)

    def transpose(self, *axes: Any) -> Any:
        """As `Handle.transpose`."""
        return self._handle().transpose(*axes)

    def as_strided(self, sizes: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> Any:
        """As `Handle.as_strided`."""
        return self._handle().as_strided(sizes, strides, offset)

    @property
    def T(self) -> Any:
        return self.transpose()

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def dtype(self) -> Any:
        """numpy dtype of dense numbers; for a block format, the format itself."""
        return self.format.spec


class Weight(_Resident):
    """A constant array a body views or indexes. Made by `weight()`."""

    def __init__(self, data: Any, name: str | None = None) -> None:
        if is_masked(data):
            raise FormatError("a masked array; legal: its numbers, as in array.filled(0).")
        try:
            self.data = data if isinstance(data, PackedArray) else np.asarray(data)
        except ValueError as error:
            raise FormatError(f"weight() of what numpy makes no array of ({error}); legal: rows of one length.") from None
        self.shape = tuple(self.data.shape)
        if 0 in self.shape:
            raise ShapeError(f"weight() of shape {self.shape}, which has no numbers; legal: 1 or more along each axis.")
        self.format = format_of(self.data)
        self.name = name

    @property
    def key(self) -> int:
        return id(self.data)

    def __repr__(self) -> str:
        return f"weight({self.format}, {list(self.shape)})"


class State(_Resident):
    """A buffer that keeps what one call wrote for the next; zeros at first. Made by `state()`."""

    data = None

    def __init__(self, shape: tuple[int, ...], format: Format, name: str | None = None) -> None:
        self.shape = shape
        self.format = format
        self.name = name

    @property
    def key(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"state({self.format}, {list(self.shape)})"


def weight(array: Any, name: str | None = None) -> Weight:
    """Wrap an array (numpy or PackedArray) that a body views or indexes.

    A bare array held by the graph and passed whole to an operator is a weight too. Arrays that are one object
    are one buffer on the device.
    """
    return Weight(array, name)


#: Elements of the largest tensor: a processor's addresses end before it, and a count of its bytes is a number of 64 bits.
LARGEST = 1 << 56


def dimensions(shape: Any) -> tuple[int, ...]:
    """A shape as a tuple of ints; ShapeError unless it is whole numbers of at least 1, or one such number, of `LARGEST` elements at
    most."""
    dims = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    if not all(isinstance(n, (int, np.integer)) and not isinstance(n, bool) and n > 0 for n in dims):
        raise ShapeError("every dimension is a whole number of at least 1.")
    if math.prod(map(int, dims)) > LARGEST:
        raise ShapeError("a tensor has at most 2**56 elements.")
    return tuple(int(n) for n in dims)


def state(shape: Any, dtype: Any = bfloat16, name: str | None = None) -> State:
    """A buffer of this shape and dtype that lives between calls, zero at first."""
    try:
        shape = dimensions(shape)
    except ShapeError as error:
        raise ShapeError(f"state(shape={shape!r}): {error}") from None
    format = as_format(dtype)
    if format.packed:
        raise ShapeError(f"state(dtype={format}): a state holds dense numbers.")
    return State(shape, format, name)


def is_array(item: Any) -> bool:
    """Is this something a body may use as a whole weight?"""
    return isinstance(item, (np.ndarray, PackedArray))
