"""`Plane`: one kind of number that a quantised tensor stores: its integers, scales, zero points or minima."""

from __future__ import annotations

import math
import re
from typing import Any

import attrs
import numpy as np

from iron_core.declare.dtypes import as_dtype
from iron_core.errors import FormatError

ROLES = ("values", "scales", "zeros", "minima")
_INTEGER = re.compile(r"(u?)int([1248])\Z")


def counts(given: Any, least: int, many: int | None = None) -> bool:
    """Is it a tuple of whole numbers, each at least `least` (and `many` of them)?"""
    whole = isinstance(given, tuple) and all(type(n) is int and n >= least for n in given)
    return whole and (many is None or len(given) == many)


def _stored_as(spec: Any) -> str:
    """The name of what a plane's numbers are stored as."""
    if isinstance(spec, str) and _INTEGER.match(spec):
        return spec
    return as_dtype(spec).name


@attrs.frozen
class Plane:
    """The numbers of one role, one for every `group` of rows and columns.

    role: "values", "scales", "zeros" or "minima".
    number: what each is stored as: a dtype, or "uint4", "int4", "uint2", "uint1" ...; several of those share a byte, the first
        in its lowest bits.
    group: rows and columns of the tensor that share one: (1, 1) a number each, (1, 32) blocks, (1, 0) rows ("per channel"),
        (0, 0) the whole matrix ("per tensor"); 0 stands for all of them.
    zero: subtracted from what is stored.
    power: the number is 2 to what is stored (less `zero`): a shared exponent.
    shift: of unsigned integers in several planes: these are `shift` bits up.
    apart: stored once for a matrix, behind its blocks; else inside every block.
    rows, columns, order: the order of the stored numbers. Each axis of the plane is cut into parts of these sizes, the largest
        step first and its count left out; `order` lists the parts (those of the rows, then those of the columns) in the order
        in which they are walked, the fastest last. By default row-major. So `columns=(16,), order=(0, 2, 1)` for 32 columns
        stores 0, 16, 1, 17, ...
    """

    role: str
    number: str = attrs.field(converter=_stored_as)
    group: tuple[int, int] = (1, 1)
    zero: int = 0
    power: bool = False
    shift: int = 0
    apart: bool = False
    rows: tuple[int, ...] = ()
    columns: tuple[int, ...] = ()
    order: tuple[int, ...] = ()

    def __attrs_post_init__(self) -> None:
        if self.role not in ROLES:
            raise FormatError(f"plane {self.role!r}; legal: {', '.join(ROLES)}.")
        if not counts(self.group, 0, 2):
            raise FormatError(f"plane {self.role}: group={self.group!r}; legal: rows and columns that share a number, 0 for all of them.")
        for axis in ("rows", "columns"):
            if not counts(getattr(self, axis), 1):
                raise FormatError(f"plane {self.role}: {axis}={getattr(self, axis)!r}; legal: a tuple of sizes, each at least 1.")
        if type(self.zero) is not int or type(self.shift) is not int:
            raise FormatError(f"plane {self.role}: zero={self.zero!r}, shift={self.shift!r}; legal: whole numbers.")
        if self.role != "values" and self.shift:
            raise FormatError(f"plane {self.role}: shift={self.shift}; legal: 0, for only values are in several planes.")
        if self.role == "values" and self.power:
            raise FormatError(f"plane values: power={self.power!r}; legal: False, for values are integers.")
        parts = len(self.rows) + len(self.columns) + 2
        if self.order and (not counts(self.order, 0) or sorted(self.order) != list(range(parts))):
            raise FormatError(f"plane {self.role}: order={self.order!r} of {parts} parts; legal: each of 0 to {parts - 1} once.")

    @property
    def bits(self) -> int:
        """Bits of one stored number."""
        match = _INTEGER.match(self.number)
        return int(match[2]) if match else 8 * as_dtype(self.number).itemsize

    @property
    def signed(self) -> bool:
        """Are they integers in two's complement?"""
        return self.number.startswith("int")

    @property
    def integer(self) -> bool:
        """Are they integers?"""
        return self.number.startswith(("int", "uint"))

    @property
    def dtype(self) -> np.dtype:
        """What `read` gives: the stored dtype; int8 or uint8 for parts of a byte."""
        if self.bits < 8:
            return np.dtype(np.int8 if self.signed else np.uint8)
        return as_dtype(self.number)

    def grid(self, shape: tuple[int, int]) -> tuple[int, int]:
        """Rows and columns of numbers for a matrix (or block) of this shape."""
        return tuple(n // (g or n) if n else 0 for n, g in zip(shape, self.group, strict=True))  # type: ignore[return-value]

    def nbytes(self, shape: tuple[int, int]) -> int:
        """Bytes of the plane of a matrix (or block) of this shape."""
        return math.prod(self.grid(shape)) * self.bits // 8

    def parts(self, shape: tuple[int, int]) -> tuple[list[int], tuple[int, ...]]:
        """Sizes of the parts that the axes are cut into, and the order in which they are stored."""
        sizes: list[int] = []
        for n, inner in zip(self.grid(shape), (self.rows, self.columns), strict=True):
            sizes += [n // math.prod(inner), *inner]
        return sizes, self.order or tuple(range(len(sizes)))

    def read(self, raw: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        """The stored numbers (..., rows, columns) of `dtype` in uint8 (..., nbytes(shape))."""
        lead, (sizes, order) = raw.shape[:-1], self.parts(shape)
        walked = [sizes[axis] for axis in order]
        if self.bits >= 8:
            stored = np.ascontiguousarray(raw).view(self.dtype).reshape(*lead, *walked)
            back = [len(lead) + order.index(axis) for axis in range(len(order))]
            return stored.transpose(*range(len(lead)), *back).reshape(*lead, *self.grid(shape))
        out = np.empty((*lead, *self.grid(shape)), np.uint8)
        target = _walk(out, lead, sizes, order)
        per = 8 // self.bits
        packed = raw.reshape(*lead, *walked[:-1], walked[-1] // per)
        if self.bits == 1:
            target[...] = np.unpackbits(packed, axis=-1, bitorder="little")
        else:
            mask = np.uint8((1 << self.bits) - 1)
            np.bitwise_and(packed, mask, out=target[..., 0::per])
            for i in range(1, per):
                part = target[..., i::per]
                np.right_shift(packed, np.uint8(i * self.bits), out=part)
                if i + 1 < per:
                    part &= mask
        if self.signed:
            up = np.int8(8 - self.bits)
            return (out.view(np.int8) << up) >> up
        return out

    def write(self, numbers: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        """uint8 (..., nbytes(shape)) of stored numbers (..., rows, columns)."""
        lead, (sizes, order) = numbers.shape[:-2], self.parts(shape)
        if self.bits >= 8:
            walked = _walk(np.ascontiguousarray(numbers.astype(self.dtype, copy=False)), lead, sizes, order)
            return joined(np.ascontiguousarray(walked), len(lead)).view(np.uint8)
        walked = _walk(np.ascontiguousarray(numbers).astype(np.uint8) & np.uint8((1 << self.bits) - 1), lead, sizes, order)
        per = 8 // self.bits
        out = walked[..., 0::per].copy()
        for i in range(1, per):
            out |= walked[..., i::per] << np.uint8(i * self.bits)
        return joined(out, len(lead))

    def widened(self, numbers: np.ndarray) -> np.ndarray:
        """What stored numbers stand for, float32."""
        if self.power:
            return np.ldexp(np.float32(1), numbers.astype(np.int32) - np.int32(self.zero)).astype(np.float32)
        wide = numbers.astype(np.float32)
        if self.zero:
            wide -= np.float32(self.zero)
        return wide


def joined(array: np.ndarray, kept: int) -> np.ndarray:
    """The array with the axes behind the first `kept` as one; without rows too, of which numpy's -1 makes nothing."""
    return array.reshape(*array.shape[:kept], math.prod(array.shape[kept:]))


def _walk(array: np.ndarray, lead: tuple[int, ...], sizes: list[int], order: tuple[int, ...]) -> np.ndarray:
    """A view of (*lead, rows, columns) with the parts of the last two axes in the order they are stored."""
    cut = array.reshape(*lead, *sizes)
    return cut.transpose(*range(len(lead)), *(len(lead) + axis for axis in order))
