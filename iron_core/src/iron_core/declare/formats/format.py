"""`Format`: how a tensor's values are stored; `PackedArray`: a tensor of a packed one. A tensor is (logical shape, Format)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from iron_core.declare.formats.plane import Plane
from iron_core.declare.indexing import by_axis, filled, listed
from iron_core.errors import DeclarationError, FormatError


class Format:
    """How a tensor's values are stored; derive from it, or describe planes with `PlaneQuant` or `BlockQuant`.

    Code asks a format what it can do and never which class it is of. What follows holds for every format:

    * `packed`: a tensor is a `PackedArray`, bytes that stand for values; else it is a numpy array of `dtype`.
    * `dtype`: of the array that stores it (uint8 where it is packed).
    * `streamed`: the dtype in which arrays move it: `dtype`, unless its bytes are numbers that cores compute with.
    * `block`: rows and columns that are stored together. A tensor is whole blocks; `block_bytes` is the bytes of one.
    * `padded`: where it is not 0, a row is a multiple of that many columns, and its last block is filled up (with zeros), which
      no shape shows; a block then has several rows.
    * `by_rows`: every row is whole blocks one after another, so rows are cut anywhere and columns at whole blocks. Else a
      view takes whole rows of blocks, or, where something of the matrix is stored apart from them, the whole matrix.
    * `group`: elements of a row that share a scale, where they are integers with scales; 0 for any other format.
    * `kept_axes`: the trailing axes that a reshape leaves as they are: 0 for a dense format, 1 for rows, 2 for matrices.
    * `planes`: what is stored, for code that decodes it by itself; empty where planes do not say enough.
    * `runs_as`: the name of the format in which models compute with it, which holds the same values.

    Instances are immutable, hashable and picklable, and equal where they store alike.
    """

    __slots__ = ()

    name: str
    packed: bool = True
    dtype: np.dtype = np.dtype(np.uint8)
    group: int = 0
    padded: int = 0
    runs_as: str = "float32"

    @property
    def spec(self) -> Any:
        """What a dtype variable holds for it: a dense format's numpy dtype, else the format itself."""
        return self if self.packed else self.dtype

    @property
    def streamed(self) -> np.dtype:
        return self.dtype

    @property
    def planes(self) -> tuple[Plane, ...]:
        return ()

    def _unsaid(self, part: str) -> DeclarationError:
        return DeclarationError(f"format {type(self).__name__} declares no {part}. Legal: declare it, or give its planes (PlaneQuant).")

    @property
    def block(self) -> tuple[int, int]:
        raise self._unsaid("block")

    @property
    def block_bytes(self) -> int:
        raise self._unsaid("block_bytes")

    @property
    def by_rows(self) -> bool:
        return self.block[0] == 1

    @property
    def kept_axes(self) -> int:
        return 1 if self.by_rows else 2

    @property
    def scale_offsets(self) -> tuple[tuple[int, np.dtype], ...]:
        """Byte of a block and dtype of each float in it: its scales and minima."""
        return ()

    def unit(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Rows and columns that every view of a tensor of this shape takes whole."""
        rows, columns = self.block
        return (1, columns) if self.by_rows else (rows, shape[-1])

    def stored(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the array of `dtype` that stores a tensor of this logical shape. FormatError unless it is whole blocks (columns:
        a multiple of `padded`, where it is not 0)."""
        rows, columns = self.block
        _whole(self.name, "a row", shape[-1], self.padded or columns)
        across = -(-shape[-1] // columns) * self.block_bytes
        if rows == 1:
            return (*shape[:-1], across)
        height = shape[-2] if len(shape) > 1 else 1
        _whole(self.name, "a column", height, rows)
        return (*shape[:-2], height // rows, across)

    def nbytes(self, shape: tuple[int, ...]) -> int:
        """Bytes of a tensor of this logical shape."""
        return math.prod(self.stored(shape)) * self.dtype.itemsize

    def row_bytes(self, columns: int) -> int:
        """Bytes of a row of `columns` elements; FormatError unless it is whole blocks."""
        return self.nbytes((columns,))

    def offset(self, start: int, shape: tuple[int, ...]) -> int:
        """Bytes before element `start` of a tensor of this shape; FormatError where no view may begin there."""
        rows, columns = self.unit(shape)
        numbers = columns if rows == 1 else rows * shape[-1]
        if start % numbers:
            raise FormatError(f"{self.name}: element {start} is not the first of a block of {numbers}.")
        return start // numbers * self.nbytes((columns,) if rows == 1 else (rows, shape[-1]))

    def tensor(self, raw: np.ndarray, shape: tuple[int, ...]) -> Any:
        """Bytes (uint8, contiguous) seen as the tensor of this shape that they store."""
        return PackedArray(raw, shape, self)

    def zeros(self, shape: tuple[int, ...]) -> Any:
        """A tensor of this shape, all bytes of it 0."""
        return self.tensor(np.zeros(self.nbytes(shape), np.uint8), shape)

    def dequantize(self, data: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """The values (float32) of a tensor of this shape from what stores it, uint8 of shape `stored(shape)`."""
        raise self._unsaid("dequantize")

    def fields(self, data: np.ndarray, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Integers, scales and minima: int32 of the logical shape, zero points subtracted where they are integers; float32
        (*shape[:-1], groups) of every row; the same of minima (-scale * zero point where that is none), or None.

        FormatError where a tensor is no integers with scales (its `group` is 0 and it has no `planes`).
        """
        raise FormatError(f"{self.name} is not integers with scales; its numbers come from dequantize().")

    def quantize(self, values: Any) -> Any:
        """Numbers rounded to this format: a tensor of the array's shape. FormatError where nobody rounds to it."""
        raise FormatError(f"{self.name} is only read; nothing here rounds numbers to it.")

    def drawn(self, rng: np.random.Generator, shape: tuple[int, ...], spread: float = 1.0) -> Any:
        """A random tensor of this shape, its numbers about the size of `spread`: normal ones rounded, or, where a format says so,
        random bits. FormatError where neither is known."""
        return self.quantize(rng.standard_normal(shape).astype(np.float32) * np.float32(spread))

    def __str__(self) -> str:
        return self.name


class PackedArray:
    """A tensor of a packed format: `data` uint8 of shape `format.stored(shape)`, logical `shape`, `format`.

    FormatError where the data is not as many bytes (uint8), or the shape not whole blocks.
    """

    __slots__ = ("data", "format", "shape")

    def __init__(self, data: np.ndarray, shape: tuple[int, ...], format: Format) -> None:
        if not isinstance(format, Format):
            raise FormatError(f"PackedArray(format={format!r}); legal: a Format, as iron.Q8_0.")
        dims = shape if isinstance(shape, (tuple, list)) else ()
        if not dims or not all(isinstance(n, (int, np.integer)) and n >= 0 for n in dims):
            raise FormatError(f"PackedArray(shape={shape!r}); legal: a whole number for each of one dimension or more.")
        if not isinstance(data, np.ndarray):
            raise FormatError(f"PackedArray: its data is of {type(data).__name__}; legal: a numpy array of uint8.")
        want = format.stored(tuple(shape))
        if data.dtype != np.uint8 or data.size != math.prod(want):
            raise FormatError(
                f"{format.name} of shape {tuple(shape)} is {math.prod(want)} bytes (uint8); "
                f"got {data.size} of {data.dtype}."
            )
        self.data = data.reshape(want)
        self.shape = tuple(int(n) for n in shape)
        self.format = format

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.data.nbytes

    def dequantize(self) -> np.ndarray:
        """float32 array of the logical shape."""
        return self.format.dequantize(self.data, self.shape)

    def copy(self) -> PackedArray:
        """The same tensor in bytes of its own."""
        return PackedArray(self.data.copy(), self.shape, self.format)

    def __getitem__(self, rows: Any) -> PackedArray:
        """Leading axes of the tensor, without a copy where numpy makes none; what is stored together stays whole."""
        if self.format.by_rows:
            self._check_columns(rows)
            data = self.data[rows]
            return PackedArray(data, (*data.shape[:-1], self.shape[-1]), self.format)
        keys = by_axis(rows, self.ndim)
        height, columns = self.shape[-2:]
        unit = self.format.unit(self.shape)[0]
        cut, across = keys[-2:]
        legal = isinstance(cut, slice) and isinstance(across, slice) and len(keys) == self.ndim
        start, stop, step = cut.indices(height) if legal else (0, 0, 1)
        if not legal or start % unit or stop % unit or stop <= start or step != 1 or across.indices(columns) != (0, columns, 1):
            raise FormatError(f"{self!r}: {self._cut_at}; got {rows}.")
        data = self.data[(*keys[:-2], slice(start // unit, stop // unit))] if unit < height else self.data[keys[:-2]]
        leading = data.shape[: data.ndim - (self.data.ndim - self.ndim + 2)]
        return PackedArray(data, (*leading, stop - start, columns), self.format)

    def _check_columns(self, rows: Any) -> None:
        """FormatError for an index that reaches into rows: what stores them is bytes of blocks."""
        keys = [key for key in (rows if isinstance(rows, tuple) else (rows,)) if key is not None]
        reached = keys and keys[-1] is not Ellipsis and (len(keys) >= self.ndim or any(key is Ellipsis for key in keys))
        columns = self.shape[-1]
        if reached and not (isinstance(keys[-1], slice) and keys[-1].indices(columns) == (0, columns, 1)):
            raise FormatError(f"{self!r}: a row of {columns} comes whole; got {rows}.")

    @property
    def _cut_at(self) -> str:
        rows = self.format.unit(self.shape)[0]
        return "a matrix comes whole" if rows == self.shape[-2] else f"rows are cut at whole blocks of {rows}"

    def reshape(self, *shape: int) -> PackedArray:
        """The same bytes under another shape, which leaves whole what is stored together: the last axis, or the last two."""
        dims = filled(listed(shape), self.size)
        kept = self.format.kept_axes
        if tuple(dims[-kept:]) != self.shape[-kept:]:
            what = f"the blocked axis {self.shape[-1]}" if kept == 1 else f"its matrices {list(self.shape[-2:])}"
            raise FormatError(f"{self.format.name}: reshape keeps {what}; got {dims}.")
        return PackedArray(self.data, dims, self.format)

    def __repr__(self) -> str:
        return f"PackedArray({self.format.name}, shape={self.shape})"


def _whole(name: str, what: str, n: int, unit: int) -> None:
    if n % unit:
        low = n // unit * unit
        raise FormatError(f"{name}: {what} of {n} is not whole blocks of {unit}. Nearest: {f'{low}, ' if low else ''}{low + unit}.")
