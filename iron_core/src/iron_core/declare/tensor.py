"""What a caller gives as a tensor, converted once: what is checked of it is what is used."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core.declare.formats import DTYPES, PackedArray
from iron_core.declare.formats.numbers import is_masked
from iron_core.declare.rounding import round_to
from iron_core.errors import CallError, FormatError, IronError, ShapeError, printable


def plain(given: Any, what: str) -> Any:
    """A numpy array of no subclass, or a PackedArray; the array itself where it is one.

    given: an array, a PackedArray, numbers, or an object that makes an array, which is asked once: it may answer otherwise
    the next time, or have another `.shape`. CallError, which names `what`, for none of these.
    """
    if type(given) is np.ndarray:
        return given
    if isinstance(given, PackedArray):
        try:
            return PackedArray(given.data, given.shape, given.format)  # its parts may have been changed
        except FormatError as error:
            raise CallError(f"{what}: {error}") from None
    if is_masked(given):
        raise CallError(f"{what} is a masked array, and only numbers are computed with; legal: its numbers, as in array.filled(0).")
    try:
        return np.asarray(given)
    except IronError:
        raise
    except (TypeError, ValueError) as error:
        raise CallError(
            f"{what} is no array ({printable(error, 200).rstrip('.') or type(error).__name__}); legal: numbers of one shape."
        ) from None


def converted(given: Any, what: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """A caller's values in the dtype they are kept in. Floats, and integers given for floats, are rounded once.

    ShapeError for another shape; CallError for what are no numbers, and for integers or floats that an integer dtype does not
    have a number near: NaN, infinity, one out of its range.
    """
    array = plain(given, what)
    if isinstance(array, PackedArray):
        raise ShapeError(f"{what} is {list(shape)} {dtype}; got a {array.format} PackedArray. Legal: its numbers, .dequantize().")
    if array.shape != shape:
        raise ShapeError(f"{what} is {list(shape)}; got {list(array.shape)}.")
    if array.dtype.kind not in "biuf" and array.dtype.name not in DTYPES:
        raise CallError(f"{what} is {dtype}; got {array.dtype}. Legal: real numbers.")
    if dtype.kind in "iu" and array.dtype != dtype:
        low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
        numbers = array if array.dtype.kind in "biu" else np.rint(array.astype(np.float64))
        wrong = ~((numbers >= low) & (numbers <= high))  # NaN is neither
        if wrong.any():
            raise CallError(f"{what} is {dtype}; got {array[wrong][0]}. Legal: {low} to {high}.")
    return round_to(array, dtype)
