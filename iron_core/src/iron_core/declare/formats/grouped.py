"""Rows of integers of which a group shares a scale, and perhaps a zero point: what GPTQ, AWQ and ONNX have, in blocks of a row."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from iron_core.declare.dtypes import as_dtype
from iron_core.declare.formats.plane import Plane
from iron_core.declare.formats.plane_quant import PlaneQuant
from iron_core.errors import FormatError

_SCALES = ("float16", "bfloat16", "float32")


def grouped(bits: int, group: int, scale: Any = np.float16, zeros: bool = False) -> PlaneQuant:
    """The format of rows of blocks, each a scale, perhaps a zero point, and `group` integers of 4 or 8 bits.

    A value is scale * (q - 8), q a nibble, two of which share a byte with the earlier one in its low half; or scale * q, q a signed
    byte. With `zeros` it is scale * (q - zero), and the zero point is a number of the scale's dtype, which holds every integer of
    those bits. Named `int4_group128`, with zero points `uint4_group128` (of 8 bits: `int8_zeros_group128`), and for the scale's dtype
    if it is not float16. FormatError for other bits, a group that is no multiple of 8, and another dtype.
    """
    if bits not in (4, 8) or type(bits) is not int:
        raise FormatError(f"grouped(bits={bits!r}); legal: 4, 8.")
    if type(group) is not int or group < 8 or group % 8:
        raise FormatError(f"grouped(group={group!r}); legal: a multiple of 8.")
    dtype = as_dtype(scale).name
    if dtype not in _SCALES:
        raise FormatError(f"grouped(scale={dtype}); legal: {', '.join(_SCALES)}.")
    return _grouped(bits, group, dtype, bool(zeros))


@cache
def _grouped(bits: int, group: int, scale: str, zeros: bool) -> PlaneQuant:
    kind = {(4, False): "int4", (4, True): "uint4", (8, False): "int8", (8, True): "int8_zeros"}[bits, zeros]
    name = f"{kind}_group{group}" + ("" if scale == "float16" else f"_{scale}")
    shared = [Plane("scales", scale, (1, group)), *([Plane("zeros", scale, (1, group))] if zeros else [])]
    values = Plane("values", "uint4", zero=0 if zeros else 8) if bits == 4 else Plane("values", "int8")
    return PlaneQuant(name, (1, group), (*shared, values), runs_as=name)
