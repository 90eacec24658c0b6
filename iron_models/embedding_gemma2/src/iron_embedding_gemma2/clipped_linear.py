"""`ClippedLinear`: a product whose input and output are held between bounds that were learned."""

from __future__ import annotations

from typing import Any

import attrs

from iron_embedding_gemma2.bounds import Bounds
from iron_lm.fields import counted, flag
from iron_lm.parts.part import Part, Weights, widen
from iron_lm.parts.projection import Projection
from iron_lm.run import Run


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
        self.bounds = Bounds() if config.clipped else None

    def body(self, x: Any) -> Any:
        if self.bounds is None:
            return self.product(x)
        found = self.product(self.bounds.input(x))
        return self.bounds.output(found) if self.config.parts == 1 else tuple(self.bounds.output(y) for y in found)

    def twin(self, weights: Weights, x: Any) -> Any:
        bounds = {} if self.bounds is None else self.inside(weights, "bounds")
        x = x if self.bounds is None else self.bounds.input_twin(bounds, x)
        found = tuple(x @ widen(weights[name]).T for name in self.names)
        if self.bounds is not None:
            found = tuple(self.bounds.output_twin(bounds, y) for y in found)
        return found[0] if len(found) == 1 else found
