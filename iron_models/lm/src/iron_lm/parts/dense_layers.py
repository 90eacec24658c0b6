"""`DenseLayers`: matrices that a vector goes through, one after another."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from iron_lm.parts.part import Part, Weights, widen
from iron_lm.parts.projection import project
from iron_lm.run import Run


class DenseLayers(Part):
    """x (rows, widths[0]) times a matrix for each step from one of `widths` to the next, (N, K), `w0` and so on -> (rows, widths[-1])."""

    category = "dense layers"

    def __init__(self, widths: Sequence[int], run: Run) -> None:
        self.widths, self.run = tuple(widths), run
        self.needs(**{f"w{n}": (wide, narrow) for n, (narrow, wide) in enumerate(pairwise(self.widths))})

    def body(self, x: Any) -> Any:
        for n in range(len(self.widths) - 1):
            x = project(x, getattr(self, f"w{n}"), self.run.activations)
        return x

    def twin(self, weights: Weights, x: Any) -> np.ndarray:
        for n in range(len(self.widths) - 1):
            x = x @ widen(weights[f"w{n}"]).T
        return np.asarray(x)
