"""FastFlowLM's formats: chunks of 32 rows by 256 columns, each with its scales and minima, then its integers.

A scale (and a minimum) is for 32 columns of a row, bfloat16, index `group * 32 + row`. Integers stand 16 rows of a column together,
then the next column; of two rows that share a byte, the even one is in its low half. Chunks are in row-major order. The last chunk
of a row is filled up with zeros.

Nothing in a chunk of 5120 bytes says which of `q4nx`, `q4nx_signed` and `q4nx_zero` it is.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from iron_core.declare.dtypes import bfloat16
from iron_core.declare.formats.format import Format, PackedArray
from iron_core.declare.formats.numbers import real_numbers
from iron_core.declare.formats.plane import Plane
from iron_core.declare.formats.plane_quant import PlaneQuant

ROWS, COLUMNS, GROUP = 32, 256, 32


def _shared(role: str) -> Plane:
    return Plane(role, "bfloat16", (1, GROUP), order=(1, 0))


def _values(number: str, zero: int = 0) -> Plane:
    return Plane("values", number, zero=zero, rows=(16,), order=(0, 2, 1))


@attrs.frozen(cache_hash=True)
class _Signed(PlaneQuant):
    """scale * q, q in two's complement; the minima are there, and zeros."""

    def quantize(self, values: Any) -> PackedArray:
        """Q4_0's rule: the scale takes the largest magnitude to -8."""
        around = PlaneQuant(self.name, self.block, (_shared("scales"), _values("uint4", 8)), padded=self.padded)
        found = around.quantize(real_numbers(values, f"{self.name}: quantize()"))
        scales = around.numbers(around.planes[0], found.data, found.shape)
        integers = around.integers(found.data, found.shape).astype(np.int8) - np.int8(8)
        return self.assembled(found.shape, scales=scales, minima=np.zeros_like(scales), values=integers)


@attrs.frozen
class _Chunk(Format):
    """Chunks that planes do not say. A subclass reads `fields` from their parts."""

    name: str
    block: tuple[int, int]  # type: ignore[assignment]
    block_bytes: int  # type: ignore[assignment]

    group = GROUP
    padded = GROUP

    def _part(self, plane: Plane, at: int, data: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """The numbers (*shape[:-2], rows, n) of a plane at byte `at` of every chunk, those that fill one up too."""
        lead, high, across = shape[:-2], shape[-2] // self.block[0], -(-shape[-1] // self.block[1])
        raw = data.reshape(*lead, high, across, self.block_bytes)[..., at : at + plane.nbytes(self.block)]
        cells = plane.read(raw, self.block).swapaxes(-3, -2)
        return cells.reshape(*lead, shape[-2], cells.shape[-2] * cells.shape[-1])

    def dequantize(self, data: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """float32 of the logical shape: integers times scale, plus minimum, each rounded to float32."""
        given = PackedArray(data, shape, self)  # FormatError for what stores no tensor
        integers, scales, minima = self.fields(given.data, given.shape)
        with np.errstate(invalid="ignore", over="ignore"):  # scales that are no numbers are found elsewhere
            values = integers.astype(np.float32).reshape(*scales.shape, GROUP) * scales[..., None]
            if minima is not None:
                values += minima[..., None]
        return values.reshape(given.shape)


@attrs.frozen
class _SubScaled(_Chunk):
    """(S * scale) * q + M * minimum: bytes of scales and minima of 32 columns, nibbles, then S and M of each row of the chunk."""

    @property
    def scale_offsets(self) -> tuple[tuple[int, np.dtype], ...]:
        return tuple((at, bfloat16) for at in range(4608, self.block_bytes, 2))

    def fields(self, data: np.ndarray, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        sub, of_row = Plane("scales", "uint8", (1, GROUP), order=(1, 0)), Plane("scales", "bfloat16", (1, COLUMNS))
        groups = shape[-1] // GROUP
        found = []
        for low, high in ((0, 4608), (256, 4672)):
            rows = np.repeat(self._part(of_row, high, data, shape).astype(np.float32), COLUMNS // GROUP, -1)
            with np.errstate(invalid="ignore", over="ignore"):
                found.append((rows * self._part(sub, low, data, shape).astype(np.float32))[..., :groups])
        integers = self._part(Plane("values", "uint4", order=(1, 0)), 512, data, shape)
        return integers[..., : shape[-1]].astype(np.int32), *found  # type: ignore[return-value]


#: Twice the numbers that four bits of sign, exponent (2) and mantissa (1) stand for.
_E2M1 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int32)


@attrs.frozen
class _Microscaled(_Chunk):
    """2^(e - 127) times a number of 4 bits, e a byte for 32 columns of a row (255: not a number); bytes up to 512 are not read."""

    def fields(self, data: np.ndarray, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        exponents = self._part(Plane("scales", "uint8", (1, GROUP), order=(1, 0)), 0, data, shape)[..., : shape[-1] // GROUP]
        scales = np.where(exponents == 255, np.float32(np.nan), np.ldexp(np.float32(1), exponents.astype(np.int32) - 128))
        return _E2M1[self._part(_values("uint4"), 512, data, shape)[..., : shape[-1]]], scales.astype(np.float32), None


_BLOCK, _BOTH = (ROWS, COLUMNS), (_shared("scales"), _shared("minima"))
#: 5120 bytes: scale * q + minimum, from Q4_1.
Q4NX = PlaneQuant("q4nx", _BLOCK, (*_BOTH, _values("uint4")), padded=GROUP, runs_as="q4nx")
#: 5120 bytes: scale * q with q signed and minima of 0, from Q4_0.
Q4NX_SIGNED = _Signed("q4nx_signed", _BLOCK, (*_BOTH, _values("int4")), padded=GROUP, runs_as="q4nx_signed")
#: 5120 bytes: scale * (q - zero), of files whose header names the dtype Q4NX.
Q4NX_ZERO = PlaneQuant("q4nx_zero", _BLOCK, (_shared("scales"), _shared("zeros"), _values("uint4")), padded=GROUP, runs_as="q4nx_zero")
#: 8704 bytes: scale * q with q signed bytes, from Q8_0.
Q4NX_Q8 = PlaneQuant("q4nx_q8", _BLOCK, (_shared("scales"), _values("int8")), padded=GROUP, runs_as="q4nx_q8")
#: 4736 bytes, only read: scales and minima that are bytes, times a bfloat16 of their row.
Q4NX_K = _SubScaled("q4nx_k", _BLOCK, 4736)
#: 2560 bytes for 32 x 128, only read: MXFP4. Known from a program that writes it; no file of its reader's was compared.
Q4NX_MXFP4 = _Microscaled("q4nx_mxfp4", (ROWS, 128), 2560)
