"""`ClippedLinear`: a product whose input and output are held between bounds that were learned."""

from __future__ import annotations

import math
from typing import Any

import attrs
import numpy as np

from iron_lm.fields import counted, flag
from iron_lm.parts.part import Part, Weights, widen
from iron_lm.parts.projection import Projection
from iron_lm.run import Run
from iron_ops_aie import Clamp

#: What the bounds are called; an infinite one holds nothing.
BOUNDS = ("input_min", "input_max", "output_min", "output_max")


@attrs.frozen
class ClippedLinearConfig:
    """inputs and outputs: numbers in a row. parts: matrices of which each has that many outputs, and which share the bounds.
    clipped: are there bounds?"""

    inputs: int = attrs.field(validator=counted)
    outputs: int = attrs.field(validator=counted)
    parts: int = attrs.field(default=1, validator=counted)
    clipped: bool = attrs.field(default=True, validator=flag)


class ClippedLinear(Part):
    """x W transposed, for each matrix. x: (rows, inputs) -> (rows, outputs), a tuple of them of several matrices."""

    def __init__(self, config: ClippedLinearConfig, run: Run) -> None:
        self.config = config
        self.names = ("matrix",) if config.parts == 1 else tuple(f"matrix{i}" for i in range(config.parts))
        self.product = Projection(self, run, **dict.fromkeys(self.names, (config.outputs, config.inputs)))
        if config.clipped:
            self.needs(**dict.fromkeys(BOUNDS, ()))

    def held(self, name: str, array: Any) -> Any:
        """A bound is a number of the graph."""
        return float(np.asarray(array).astype(np.float32)) if name in BOUNDS else super().held(name, array)

    def body(self, x: Any) -> Any:
        found = self.product(self._held_between(x, "input"))
        if self.config.parts == 1:
            return self._held_between(found, "output")
        return tuple(self._held_between(y, "output") for y in found)

    def _held_between(self, x: Any, which: str) -> Any:
        if not self.config.clipped:
            return x
        low, high = getattr(self, f"{which}_min"), getattr(self, f"{which}_max")
        return x if math.isinf(low) and math.isinf(high) else Clamp(x, low=low, high=high)

    def twin(self, weights: Weights, x: Any) -> Any:
        low, high, least, most = (float(widen(weights[name])) for name in BOUNDS) if self.config.clipped else (-math.inf, math.inf) * 2
        x = np.clip(x, np.float32(low), np.float32(high))
        found = tuple(np.clip(x @ widen(weights[name]).T, np.float32(least), np.float32(most)) for name in self.names)
        return found[0] if len(found) == 1 else found
