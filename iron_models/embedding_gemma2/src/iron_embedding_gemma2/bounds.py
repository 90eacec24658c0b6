"""`Bounds`: what a product's input and output are held between, four numbers that were learned."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from iron_lm.parts.part import Part, Weights, widen
from iron_ops_aie import Clamp

#: What the bounds are called; an infinite one holds nothing.
BOUNDS = ("input_min", "input_max", "output_min", "output_max")


class Bounds(Part):
    """`input(x)` and `output(y)` are x and y held between the two bounds of either; the same of the twin with its weights."""

    input_min: float
    input_max: float
    output_min: float
    output_max: float

    def __init__(self) -> None:
        self.needs(**dict.fromkeys(BOUNDS, ()))

    def held(self, name: str, array: Any) -> Any:
        """A bound is a number of the graph."""
        return float(np.asarray(array).astype(np.float32))

    def input(self, x: Any) -> Any:
        return _between(x, self.input_min, self.input_max)

    def output(self, y: Any) -> Any:
        return _between(y, self.output_min, self.output_max)

    def input_twin(self, weights: Weights, x: np.ndarray) -> np.ndarray:
        return np.clip(x, widen(weights["input_min"]), widen(weights["input_max"]))

    def output_twin(self, weights: Weights, y: np.ndarray) -> np.ndarray:
        return np.clip(y, widen(weights["output_min"]), widen(weights["output_max"]))


def _between(x: Any, low: float, high: float) -> Any:
    return x if math.isinf(low) and math.isinf(high) else Clamp(x, low=low, high=high)
