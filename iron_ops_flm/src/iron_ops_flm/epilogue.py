"""What `flm.GEMM` makes of its sums before they leave: an activation, one rounding to bfloat16, a clamp."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any

import attrs
import numpy as np

from iron_core import bfloat16, round_to
from iron_core.declare.rounding import floored

GELUS = ("fp32", "bf16_steps")
#: gelu(x) = x sigmoid(GELU x).
GELU = 1.702


class Epilogue(IntEnum):
    """The activation. A core is given its number as a word."""

    NONE = 0
    GELU = 1
    SILU = 2
    SIGMOID = 3

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return f"Epilogue.{self.name}"


def narrowed(x: Any, rounding: str) -> np.ndarray:
    """Numbers rounded to bfloat16 and widened again: to the nearest, half to even, or with "floor" down."""
    x = np.asarray(x)
    return (floored(x) if rounding == "floor" else round_to(x, bfloat16)).astype(x.dtype)


@attrs.frozen
class Finish:
    """What is made of a sum: an `Epilogue`, or its number, with how it rounds and where it is cut.

    gelu: "fp32" takes the sum itself and rounds once; "bf16_steps" rounds it, the sigmoid's argument and the sigmoid too, as
    FastFlowLM's overlay does.
    """

    epilogue: int
    rounding: str = "conv_even"
    gelu: str = "fp32"
    low: float = -np.inf
    high: float = np.inf

    def of(self, sums: Any, exp: Callable[[np.ndarray], np.ndarray] = np.exp) -> np.ndarray:
        """Numbers that bfloat16 holds, in the dtype of the sums. Any activation but the GELU in float32 takes rounded sums. exp: what
        computes the exponential."""
        x, one = np.asarray(sums), np.asarray(sums).dtype.type(1)
        factor = x.dtype.type(GELU)
        with np.errstate(over="ignore", invalid="ignore"):
            if self.epilogue == Epilogue.GELU and self.gelu == "fp32":
                y = x / (one + exp(-(factor * x)))
            else:
                y = x = narrowed(x, self.rounding)
                if self.epilogue == Epilogue.SILU:
                    y = x / (one + exp(-x))
                elif self.epilogue == Epilogue.SIGMOID:
                    y = one / (one + exp(-x))
                elif self.epilogue == Epilogue.GELU:
                    y = x * narrowed(one / (one + exp(-narrowed(factor * x, self.rounding))), self.rounding)
            y, low, high = narrowed(y, self.rounding), x.dtype.type(self.low), x.dtype.type(self.high)
            return np.where(y < low, low, np.where(y > high, high, y))  # a NaN stays one

    @property
    def steepest(self) -> float:
        """How much further apart two results may be than any two sums."""
        return {0: 1.0, int(Epilogue.SIGMOID): 0.25}.get(self.epilogue, 1.1)

    def slope(self, sums: Any) -> np.ndarray:
        """How much further apart two results may be than their sums, where these are near the given ones; rounding is besides."""
        x = np.abs(np.asarray(sums, np.float64))
        if self.epilogue == Epilogue.NONE:
            return np.ones_like(x)
        if self.epilogue == Epilogue.SIGMOID:
            return np.exp(-x) / (1 + np.exp(-x)) ** 2 * (1 + x / 64) + 2.0**-20
        signed = np.asarray(sums, np.float64) * (GELU if self.epilogue == Epilogue.GELU else 1)
        with np.errstate(over="ignore"):
            sigmoid = 1 / (1 + np.exp(-signed))
        return np.abs(sigmoid + signed * sigmoid * (1 - sigmoid)) + x / 256 * np.exp(-x / 2) + 2.0**-20
