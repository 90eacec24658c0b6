"""`LayerNorm`: rows less their mean, divided by how far they spread."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

import iron_ops_aie as ops
from iron_lm.fields import counted, positive
from iron_lm.parts.part import Part, Weights, widen


@attrs.frozen
class LayerNormConfig:
    """size: numbers in a row."""

    size: int = attrs.field(validator=counted)
    epsilon: float = attrs.field(default=1e-5, validator=positive)


class LayerNorm(Part):
    """(x - mean(x)) / sqrt(var(x) + epsilon), times the weight, plus the bias. x: (rows, size)."""

    category = "norms"

    weight: Any
    bias: Any

    def __init__(self, config: LayerNormConfig) -> None:
        self.config = config
        self.needs(weight=(config.size,), bias=(config.size,))

    def body(self, x: Any) -> Any:
        return ops.LayerNorm(x, epsilon=self.config.epsilon, weight=self.weight, bias=self.bias)

    def twin(self, weights: Weights, x: Any) -> np.ndarray:
        wide = x.astype(np.float64)
        y = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + self.config.epsilon)
        return np.asarray(y.astype(x.dtype) * widen(weights["weight"]) + widen(weights["bias"]))
