"""Ports: what a caller gives as checked, contiguous data; what a backend filled as the tensor the caller gets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from iron_core.declare.affine import bounded_shape, evaluate
from iron_core.declare.formats import DTYPES, PackedArray
from iron_core.declare.tensor import plain
from iron_core.errors import CallError, ShapeError
from iron_core.image.plan import Port


class InputPort:
    """One input of a version."""

    def __init__(self, port: Port) -> None:
        self.port = port
        self.dtype = None if port.format.packed else port.format.dtype

    def take(self, tensor: Any, values: Mapping[str, int]) -> np.ndarray:
        """The array that stores a caller's tensor, its numbers one after another, each at a multiple of its size: the tensor
        itself where it is that already. It is whole or cut to this call's bounds; its shape says which.

        ShapeError for another shape; CallError for another format, for floats where the port's are
        whole numbers, and for numbers that the port's dtype does not hold exactly.
        """
        port = self.port
        if type(tensor) is np.ndarray and tensor.dtype == self.dtype and tensor.shape == port.shape:
            flags = tensor.flags
            return tensor if flags.c_contiguous and flags.aligned else _laid_out(tensor)
        tensor = plain(tensor, f"input `{port.name}`")  # from here on it is what it is, whatever it was
        data = self._checked(tensor)
        if tensor.shape != port.shape:
            shape = bounded_shape(port.shape, port.bounds, values)
            if tensor.shape != shape:
                either = f" or, cut to this call's bound, {shape}" if port.bounds else ""
                raise ShapeError(f"input `{port.name}` has shape {tensor.shape}; it takes {port.shape}{either}.")
        return _laid_out(data)

    def _checked(self, tensor: Any) -> np.ndarray:
        """The tensor's data in the port's dtype; CallError when that would change a number."""
        port = self.port
        packed = isinstance(tensor, PackedArray)
        if self.dtype is None:
            if not packed or tensor.format != port.format:
                got = f"{tensor.format} one" if packed else f"{tensor.dtype} array"
                raise CallError(f"input `{port.name}` is a {port.format.name} PackedArray; got a {got}.")
            return tensor.data
        if packed:
            raise CallError(f"input `{port.name}` is {port.format.name}; got a {tensor.format} PackedArray.")
        data = tensor
        if data.dtype == self.dtype:
            return data
        if data.dtype.kind not in "biuf" and data.dtype.name not in DTYPES:
            raise CallError(f"input `{port.name}` is {port.format.name}; got {data.dtype}. Legal: real numbers.")
        if self.dtype.kind in "iu" and data.dtype.kind not in "biu":
            raise CallError(
                f"input `{port.name}` is {port.format.name}; got {data.dtype}. Legal: whole numbers, as .astype({self.dtype}) makes them."
            )
        with np.errstate(all="ignore"):
            exact = data.astype(self.dtype)
            same = np.array_equal(exact.astype(data.dtype), data)
        if not same:
            raise CallError(
                f"input `{port.name}` is {port.format.name}; these {data.dtype} numbers are not all exact in it. Round "
                f"them first, or compile for {data.dtype}."
            )
        return exact


def _laid_out(data: np.ndarray) -> np.ndarray:
    return np.require(data, requirements=("C", "A"))


def whole(port: Port, data: np.ndarray, fill: int = 0xFF) -> np.ndarray:
    """What `InputPort.take` gave, at the port's compiled shape: the data itself, or a copy with bytes of `fill` where a bound
    cut it. All ones are a NaN in every float dtype, so that a read of what nobody gave shows."""
    shape = port.format.stored(port.shape)
    if data.shape == shape:
        return data
    made = np.full(port.format.nbytes(port.shape), fill, np.uint8).view(data.dtype).reshape(shape)
    made[tuple(slice(n) for n in data.shape)] = data
    return made


class OutputPort:
    """One output of a version."""

    def __init__(self, port: Port) -> None:
        self.port = port
        #: Of the array that a backend fills, at the compiled shape.
        self.dtype, self.shape = port.format.dtype, port.format.stored(port.shape)
        #: Is that array what the caller gets?
        self.as_it_is = not port.format.packed and not port.bounds

    def finish(self, data: np.ndarray, values: Mapping[str, int]) -> Any:
        """The filled array as the caller sees it: cut to this call's bounds."""
        port = self.port
        tensor = PackedArray(data, port.shape, port.format) if port.format.packed else data
        if not port.bounds:
            return tensor
        part = cut(tensor, port, values)
        return part if isinstance(part, PackedArray) else np.ascontiguousarray(part)


def cut(tensor: Any, port: Port, values: Mapping[str, int]) -> Any:
    """The part of a tensor of the port that this call's bounds leave."""
    if not port.bounds:
        return tensor
    index = [slice(None)] * len(port.shape)
    for axis, expression in port.bounds:
        index[axis] = slice(evaluate(expression, values))
    return tensor[tuple(index)]
