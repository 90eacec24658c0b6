"""How a tensor's numbers are stored: `Dense` arrays and block-quantised rows.

A tensor is (logical shape, Format). A `Dense` tensor is a numpy array of one dtype. A `BlockQuant`
tensor is rows of fixed-size blocks: `group` numbers that share a scale and perhaps a minimum; on the
host it travels as a `PackedArray` (the bytes, the logical shape, the format).
"""

from __future__ import annotations

import math
from typing import Any, Union

import attrs
import ml_dtypes
import numpy as np

from iron_core.errors import FormatError

bfloat16 = np.dtype(ml_dtypes.bfloat16)

#: Every dtype a dense tensor may have, by the name used in messages, keys and file names.
DTYPES: dict[str, np.dtype] = {
    "bfloat16": bfloat16,
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "int8": np.dtype(np.int8),
    "uint8": np.dtype(np.uint8),
    "int32": np.dtype(np.int32),
    "uint32": np.dtype(np.uint32),
}


def as_dtype(spec: Any) -> np.dtype:
    """The `numpy.dtype` of a name, a scalar type or a dtype; FormatError for one Iron does not carry."""
    try:
        dtype = DTYPES[spec] if isinstance(spec, str) and spec in DTYPES else np.dtype(spec)
    except TypeError:
        dtype = None
    if dtype is None or dtype not in DTYPES.values():
        raise FormatError(f"dtype={spec!r}: not a dtype Iron carries. Legal: {', '.join(DTYPES)}.")
    return dtype


@attrs.frozen
class Dense:
    """One number after another, row-major."""

    dtype: np.dtype = attrs.field(converter=as_dtype)

    @property
    def name(self) -> str:
        return next(name for name, dtype in DTYPES.items() if dtype == self.dtype)

    def nbytes(self, shape: tuple[int, ...]) -> int:
        """Bytes of a tensor of this shape."""
        return math.prod(shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return self.name


@attrs.frozen
class BlockQuant:
    """Rows cut into blocks of `group` integers sharing a scale (and a minimum).

    A number is `scale * (q - zero) + minimum`, q an unsigned (or, with `signed`, two's complement)
    integer of `bits` bits (4, 5 or 8). A block's bytes are: scale, minimum (if any), integers. `order`
    says how 4-bit integers share bytes: "halves" puts element i in the low nibble and i + group/2 in
    the high nibble of byte i (GGUF); "pairs" puts 2i low and 2i + 1 high. The fifth bits of 5-bit
    integers stand in front of the nibbles, element i's in bit i % 8 of byte i / 8.
    """

    name: str
    bits: int
    group: int
    scale: np.dtype = attrs.field(converter=as_dtype)
    minimum: bool = False
    zero: int = 0
    signed: bool = False
    order: str = attrs.field(default="halves", validator=attrs.validators.in_(("halves", "pairs")))

    @property
    def block_bytes(self) -> int:
        """Bytes of one block."""
        return self._head + self.group * self.bits // 8

    @property
    def _head(self) -> int:
        """Bytes before a block's integers."""
        return self.scale.itemsize * (2 if self.minimum else 1)

    def row_bytes(self, columns: int) -> int:
        """Bytes of a row of `columns` numbers; FormatError unless they are whole blocks."""
        if columns % self.group:
            low = columns // self.group * self.group
            raise FormatError(
                f"{self.name}: a row of {columns} is not whole blocks of {self.group}. "
                f"Nearest: {f'{low}, ' if low else ''}{low + self.group}."
            )
        return columns // self.group * self.block_bytes

    def nbytes(self, shape: tuple[int, ...]) -> int:
        """Bytes of a tensor of this logical shape (the last axis is the blocked one)."""
        return math.prod(shape[:-1]) * self.row_bytes(shape[-1])

    def fields(self, packed: np.ndarray, columns: int) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Integers, scales and minima of packed rows.

        packed: uint8 (..., row_bytes). Returns int32 (..., columns) with `zero` already subtracted,
        float32 scales (..., columns / group) and float32 minima of that shape or None.
        """
        blocks = columns // self.group
        raw = packed.reshape(*packed.shape[:-1], blocks, self.block_bytes)
        head = self.scale.itemsize
        scales = np.ascontiguousarray(raw[..., :head]).view(self.scale)[..., 0].astype(np.float32)
        minima = None
        if self.minimum:
            minima = np.ascontiguousarray(raw[..., head : 2 * head]).view(self.scale)[..., 0].astype(np.float32)
            head *= 2
        ints = self.stored(raw[..., head:]).astype(np.int32)
        return ints.reshape(*packed.shape[:-1], columns) - self.zero, scales, minima

    def stored(self, body: np.ndarray) -> np.ndarray:
        """uint8 or int8 (..., group): the integers of blocks' bytes, `zero` not yet subtracted."""
        if self.bits == 8:
            ints = body.view(np.int8) if self.signed else body
        else:
            fifths = None
            if self.bits == 5:
                fifths = np.unpackbits(body[..., : self.group // 8], axis=-1, bitorder="little")
                body = body[..., self.group // 8 :]
            low, high = body & 0xF, body >> 4
            if self.order == "halves":
                ints = np.concatenate([low, high], axis=-1)
            else:
                ints = np.stack([low, high], axis=-1).reshape(*body.shape[:-1], self.group)
            if fifths is not None:
                ints = ints | fifths << 4
            if self.signed:
                ints = np.where(ints >> (self.bits - 1), ints.view(np.int8) - np.int8(1 << self.bits), ints.view(np.int8))
        return ints

    def dequantize(self, packed: np.ndarray, columns: int) -> np.ndarray:
        """float32 (..., columns) of packed rows uint8 (..., row_bytes)."""
        raw = packed.reshape(*packed.shape[:-1], columns // self.group, self.block_bytes)
        halves = [np.ascontiguousarray(raw[..., at : at + self.scale.itemsize]) for at in range(0, self._head, self.scale.itemsize)]
        values = self.stored(raw[..., self._head :]).astype(np.float32)
        if self.zero:
            values -= np.float32(self.zero)
        values *= halves[0].view(self.scale).astype(np.float32)
        if self.minimum:
            values += halves[1].view(self.scale).astype(np.float32)
        return values.reshape(*packed.shape[:-1], columns)

    def quantize(self, values: np.ndarray) -> PackedArray:
        """Round a float array (..., columns) to this format, by GGUF's rule for the same layout."""
        values = np.asarray(values, np.float32)
        columns = values.shape[-1]
        self.row_bytes(columns)
        x = values.reshape(*values.shape[:-1], columns // self.group, self.group)
        levels = (1 << self.bits) - 1
        minima = None
        if self.minimum:
            low, high = x.min(-1), x.max(-1)
            scales, minima = (high - low) / np.float32(levels), low
            shifted, top, bottom = x - low[..., None], levels, 0
        else:
            extreme = np.take_along_axis(x, np.abs(x).argmax(-1)[..., None], -1)[..., 0]
            if self.signed:
                half = (1 << (self.bits - 1)) - 1
                scales, top, bottom = np.abs(extreme) / np.float32(half), half, -half
            else:
                scales, top, bottom = extreme / np.float32(-self.zero), levels - self.zero, -self.zero
            shifted = x
        with np.errstate(divide="ignore"):
            inverse = np.where(scales != 0, np.float32(1) / scales, np.float32(0)).astype(np.float32)
        scaled = shifted * inverse[..., None]
        rounded = np.copysign(np.floor(np.abs(scaled) + np.float32(0.5)), scaled)  # half away from zero
        ints = np.clip(rounded, bottom, top).astype(np.int32) + self.zero
        parts = [scales.astype(self.scale)[..., None].view(np.uint8)]
        if minima is not None:
            parts.append(np.ascontiguousarray(minima).astype(self.scale)[..., None].view(np.uint8))
        if self.bits == 8:
            parts.append((ints & 0xFF).astype(np.uint8))
        else:
            if self.bits == 5:
                parts.append(np.packbits((ints >> 4 & 1).astype(np.uint8), axis=-1, bitorder="little"))
            ints = (ints & 0xF).astype(np.uint8)
            if self.order == "halves":
                low4, high4 = ints[..., : self.group // 2], ints[..., self.group // 2 :]
            else:
                low4, high4 = ints[..., 0::2], ints[..., 1::2]
            parts.append(low4 | high4 << 4)
        data = np.concatenate(parts, -1).reshape(*values.shape[:-1], -1)
        return PackedArray(data, values.shape, self)

    def __str__(self) -> str:
        return self.name


#: GGUF's block formats of 32 numbers (ggml type ids 2, 3, 6, 7 and 8).
Q4_0 = BlockQuant("q4_0", bits=4, group=32, scale=np.float16, zero=8)
Q4_1 = BlockQuant("q4_1", bits=4, group=32, scale=np.float16, minimum=True)
Q5_0 = BlockQuant("q5_0", bits=5, group=32, scale=np.float16, zero=16)
Q5_1 = BlockQuant("q5_1", bits=5, group=32, scale=np.float16, minimum=True)
Q8_0 = BlockQuant("q8_0", bits=8, group=32, scale=np.float16, signed=True)

#: The block formats above, by name.
BLOCK_FORMATS: dict[str, BlockQuant] = {f.name: f for f in (Q4_0, Q4_1, Q5_0, Q5_1, Q8_0)}

Format = Union[Dense, BlockQuant]


def as_format(spec: Any) -> Format:
    """A Format of a Format, or of anything `as_dtype` takes."""
    return spec if isinstance(spec, (Dense, BlockQuant)) else Dense(spec)


class PackedArray:
    """A block-quantised tensor on the host: `data` uint8 (*shape[:-1], row_bytes), logical `shape`, `format`."""

    __slots__ = ("data", "format", "shape")

    def __init__(self, data: np.ndarray, shape: tuple[int, ...], format: BlockQuant) -> None:
        want = (*shape[:-1], format.row_bytes(shape[-1]))
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
        return self.format.dequantize(self.data, self.shape[-1])

    def __getitem__(self, rows: Any) -> PackedArray:
        """Rows (leading axes) of the tensor; the blocked axis stays whole."""
        data = self.data[rows]
        return PackedArray(data, (*data.shape[:-1], self.shape[-1]), self.format)

    def reshape(self, *shape: int) -> PackedArray:
        """The same bytes under another shape whose last axis is unchanged."""
        dims = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        if dims[-1] != self.shape[-1]:
            raise FormatError(f"{self.format.name}: reshape keeps the blocked axis {self.shape[-1]}; got {dims}.")
        data = self.data.reshape(*dims[:-1], self.data.shape[-1])
        return PackedArray(data, (*data.shape[:-1], dims[-1]), self.format)

    def __repr__(self) -> str:
        return f"PackedArray({self.format.name}, shape={self.shape})"


def format_of(array: Any) -> Format:
    """The Format of a host array or PackedArray."""
    return array.format if isinstance(array, PackedArray) else Dense(np.asarray(array).dtype)
