"""Block floating point as AIE2P's multipliers take it: eight numbers share an exponent, each has a byte."""

from __future__ import annotations

from functools import partial
from typing import Any

import attrs
import numpy as np

from iron_core.declare.formats.format import PackedArray
from iron_core.declare.formats.numbers import real_numbers
from iron_core.declare.formats.plane import Plane
from iron_core.declare.formats.plane_quant import PlaneQuant
from iron_core.declare.formats.rounded import rounded
from iron_core.errors import FormatError

#: Numbers that share an exponent.
GROUP = 8
#: What float32 adds to an exponent, and the bits that a byte holds behind the largest number's first.
_BIAS, _BEHIND = 127, 6
ROUNDINGS = ("conv_even", "floor")


@attrs.frozen(cache_hash=True)
class BlockFloat(PlaneQuant):
    """Integers whose scales are powers of two, those of each group's largest magnitude."""

    def quantize(self, values: Any, rounding: str = "conv_even") -> PackedArray:
        """Numbers (..., columns) rounded to this format: half to even, or with "floor" down.

        The largest of a group keeps seven bits, its first included, and its exponent is the group's. What rounds past -128 or 127
        is cut to them; numbers far below the largest become 0 (rounded down, negative ones -1). Zero of either sign is 0. Numbers
        that float32 holds below its normal ones round like any other; the least exponent is theirs. FormatError for NaN and
        infinities, which no byte stands for, and for what is no whole groups.
        """
        if not isinstance(rounding, str) or rounding not in ROUNDINGS:
            raise FormatError(f"{self.name}: quantize(rounding={rounding!r}); legal: {' or '.join(map(repr, ROUNDINGS))}.")
        with np.errstate(over="ignore"):  # what float32 does not hold is refused below
            numbers = real_numbers(values, f"{self.name}: quantize()").astype(np.float32)
        if not np.isfinite(numbers).all():
            raise FormatError(f"{self.name}: quantize() of NaN or infinity; legal: finite numbers of float32.")
        return self._quantized(numbers, partial(rounded, down=rounding == "floor"))


#: Nine bytes for eight numbers of a row: float32's exponent of the largest, then m of each, which is m * 2**(exponent - 133).
BFP16EBS8 = BlockFloat(
    "bfp16ebs8", (1, GROUP), (Plane("scales", "uint8", (1, GROUP), power=True, zero=_BIAS + _BEHIND), Plane("values", "int8"))
)


def bfp16(matrix: Any, axis: int) -> np.ndarray:
    """float32: what a core that makes bfp16 of a matrix before it multiplies has for its numbers; nothing is refused.

    Eight along `axis` share the largest one's exponent; each has 8 bits with its sign, rounded half to even and cut to -128 to 127.
    """
    wide = np.moveaxis(np.asarray(matrix, np.float32), axis, -1)
    blocks = eights(wide)
    _, exponent = np.frexp(np.abs(blocks).max(-1, keepdims=True))  # the largest is in [2^(e-1), 2^e)
    held = np.clip(np.rint(np.ldexp(blocks, 7 - exponent)), -128, 127)
    back = np.ldexp(held, exponent - 7).astype(np.float32).reshape(*wide.shape[:-1], -1)
    return np.moveaxis(back[..., : wide.shape[-1]], -1, axis)


def eights(numbers: np.ndarray) -> np.ndarray:
    """(..., n) as (..., groups, 8), with zeros behind the last number."""
    padded = np.pad(numbers, [(0, 0)] * (numbers.ndim - 1) + [(0, -numbers.shape[-1] % GROUP)])
    return padded.reshape(*padded.shape[:-1], -1, GROUP)
