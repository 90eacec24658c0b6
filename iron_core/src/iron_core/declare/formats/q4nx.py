"""FastFlowLM's formats: chunks of 32 rows by 256 columns, each with its scales and minima, then its integers.

A scale (and a minimum) is for 32 columns of a row, bfloat16, index `group * 32 + row`. Integers stand 16 rows of a column together,
then the next column; of two rows that share a byte, the even one is in its low half. Chunks are in row-major order. The last chunk
of a row is filled up with zeros.
"""

from __future__ import annotations

from iron_core.declare.formats.plane import Plane
from iron_core.declare.formats.plane_quant import PlaneQuant

ROWS, COLUMNS, GROUP = 32, 256, 32


def _shared(role: str) -> Plane:
    return Plane(role, "bfloat16", (1, GROUP), order=(1, 0))


def _values(number: str) -> Plane:
    return Plane("values", number, rows=(16,), order=(0, 2, 1))


def _chunks(name: str, *planes: Plane) -> PlaneQuant:
    return PlaneQuant(name, (ROWS, COLUMNS), planes, padded=GROUP, runs_as=name)


#: scale * q + minimum, from Q4_1; 5120 bytes a chunk.
Q4NX = _chunks("q4nx", _shared("scales"), _shared("minima"), _values("uint4"))
