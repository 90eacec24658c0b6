"""What a caller gives as numbers, as an array."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from iron_core.declare.dtypes import DTYPES
from iron_core.errors import FormatError, printable


def is_masked(given: Any) -> bool:
    """Is this numpy's masked array, whose elements do not all count?"""
    masked = sys.modules.get("numpy.ma")
    return masked is not None and isinstance(given, masked.MaskedArray)


def real_numbers(given: Any, what: str) -> np.ndarray:
    """An array of real numbers. FormatError, which names `what`, for what is none."""
    if is_masked(given):
        raise FormatError(f"{what} of an array that is masked; legal: its numbers, as in array.filled(0).")
    if hasattr(given, "dequantize"):
        raise FormatError(f"{what} of {given.format}; legal: its numbers, .dequantize().")
    try:
        array = np.asarray(given)
    except (TypeError, ValueError) as error:
        raise FormatError(f"{what} is no array ({printable(error, 200).rstrip('.')}); legal: numbers of one shape.") from None
    if array.dtype.kind not in "biuf" and array.dtype not in DTYPES.values():
        raise FormatError(f"{what} of {array.dtype}; legal: real numbers.")
    return array
