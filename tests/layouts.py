"""Formats in use elsewhere, as instances: what their own documents say of their bytes, written as planes. And one of a pack."""

from __future__ import annotations

from iron_core import BFP16EBS8, Q4NX, Plane, PlaneQuant

#: GPTQ's int4 with groups of 128, transposed as in its files: qweight int32 (K/8, N), qzeros int32 (K/128, N/8), whose zero points
#: are one less than the real ones, scales float16 (K/128, N).
GPTQ = PlaneQuant(
    "gptq4",
    (8, 128),
    (
        Plane("values", "uint4", apart=True, columns=(8,), order=(1, 0, 2)),
        Plane("zeros", "uint4", (1, 128), zero=-1, apart=True, order=(1, 0)),
        Plane("scales", "float16", (1, 128), apart=True, order=(1, 0)),
    ),
)

#: AWQ's int4 with groups of 128: qweight int32 (K, N/8) and qzeros int32 (K/128, N/8), both with outputs 0, 2, 4, 6, 1, 3, 5, 7 of
#: eight in a word, scales float16 (K/128, N).
AWQ = PlaneQuant(
    "awq4",
    (8, 128),
    (
        Plane("values", "uint4", apart=True, rows=(4, 2), order=(3, 0, 2, 1)),
        Plane("zeros", "uint4", (1, 128), apart=True, rows=(4, 2), order=(3, 0, 2, 1)),
        Plane("scales", "float16", (1, 128), apart=True, order=(1, 0)),
    ),
)

#: int8 with one scale a matrix, and with one a row.
INT8_TENSOR = PlaneQuant(
    "int8_tensor", (1, 1), (Plane("values", "int8", apart=True), Plane("scales", "float32", (0, 0), apart=True))
)
INT8_CHANNEL = PlaneQuant(
    "int8_channel", (1, 1), (Plane("values", "int8", apart=True), Plane("scales", "float32", (1, 0), apart=True))
)

EVERY = (Q4NX, GPTQ, AWQ, INT8_TENSOR, INT8_CHANNEL, BFP16EBS8)

#: A pack's module with a format that no plane describes, "acme.table": two bits are a place in a table of four numbers.
TABLE = """
import attrs
import numpy as np
from iron_core import Format, PackedArray


@attrs.frozen
class Table(Format):
    name: str
    table: tuple = (-1.0, -0.25, 0.25, 1.0)
    block = (1, 4)
    block_bytes = 1

    def dequantize(self, data, shape):
        places = np.stack([data >> 2 * i & 3 for i in range(4)], -1).reshape(shape)
        return np.array(self.table, np.float32)[places]

    def quantize(self, values):
        places = np.abs(np.asarray(values)[..., None] - np.array(self.table)).argmin(-1).astype(np.uint8)
        four = places.reshape(*places.shape[:-1], -1, 4)
        return PackedArray(sum(four[..., i] << 2 * i for i in range(4)).astype(np.uint8), values.shape, self)


TABLE = Table("acme.table")
"""
