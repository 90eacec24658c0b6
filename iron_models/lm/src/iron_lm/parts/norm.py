"""`Norm`: rows divided by their root mean square."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from iron_lm.fields import counted, flag, positive
from iron_lm.parts.part import Part, Weights, widen
from iron_ops_aie import RMSNorm


@attrs.frozen
class NormConfig:
    """size: numbers in a row. weight: is each of them scaled after? A checkpoint that stores scales less one is a matter of
    its names (`sources.PlusOne`)."""

    size: int = attrs.field(validator=counted)
    epsilon: float = attrs.field(default=1e-5, validator=positive)
    weight: bool = attrs.field(default=True, validator=flag)


class Norm(Part):
    """x / sqrt(mean(x^2) + epsilon), times the weight where there is one. x: (rows, size).

    order: which number of the weight belongs to each place of a row, where a row is not in the weight's own order.
    """

    category = "norms"

    def __init__(self, config: NormConfig, order: np.ndarray | None = None) -> None:
        self.config, self._order = config, order
        self.weight: Any = None
        if config.weight:
            self.needs(weight=(config.size,))

    def arranged(self, name: str, array: Any) -> Any:
        return array if self._order is None else array[self._order]

    def body(self, x: Any) -> Any:
        given = {} if self.weight is None else {"weight": self.weight}
        return RMSNorm(x, epsilon=self.config.epsilon, **given)

    def twin(self, weights: Weights, x: Any) -> np.ndarray:
        mean = np.mean(x.astype(np.float64) ** 2, -1, keepdims=True)
        y = (x / np.sqrt(mean + self.config.epsilon)).astype(x.dtype)
        return y * widen(weights["weight"]) if self.config.weight else y
