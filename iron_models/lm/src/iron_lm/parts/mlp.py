"""Feed-forwards: `GatedMLP`, that of llama-like models, and `MLP`, the older one without a gate."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import attrs
import numpy as np

from iron_lm.fields import among, counted, flag
from iron_lm.parts.part import Part, Weights, widen
from iron_lm.parts.projection import Projection
from iron_lm.run import Run
from iron_ops_aie import GELU, ElementwiseMul, SiLU
from iron_ops_aie.logistic import silu


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    return np.asarray(0.5 * x * (1 + np.tanh(np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x**3))))


_ERFC = np.frompyfunc(math.erfc, 1, 1)


def _gelu(x: np.ndarray) -> np.ndarray:
    return np.asarray(x * (np.asarray(_ERFC(x * -math.sqrt(0.5)), np.float64) * 0.5).astype(x.dtype))


#: What lies between the matrices, by name: the operator, and the same in numpy.
ACTIVATIONS: dict[str, tuple[Any, Any]] = {
    "silu": (SiLU, silu),
    "gelu": (partial(GELU, approximate="none"), _gelu),
    "gelu_tanh": (GELU, _gelu_tanh),
}


@attrs.frozen
class _Config:
    """activation: one of `ACTIVATIONS`."""

    hidden_size: int = attrs.field(validator=counted)
    intermediate_size: int = attrs.field(validator=counted)
    activation: str = attrs.field(default="silu", validator=among(sorted(ACTIVATIONS)))


@attrs.frozen
class GatedMLPConfig(_Config):
    """Of a `GatedMLP`."""


@attrs.frozen
class MLPConfig(_Config):
    """Of an `MLP`. bias: is a vector added after each matrix?"""

    bias: bool = attrs.field(default=False, validator=flag)


class GatedMLP(Part):
    """down(f(gate x) * up x). x: (rows, hidden_size), and the same shape comes out."""

    category = "feed-forward"

    gate: Any
    up: Any
    down: Any

    def __init__(self, config: GatedMLPConfig, run: Run) -> None:
        self.config, self.run = config, run
        wide = (config.intermediate_size, config.hidden_size)
        self.widens = Projection(self, run, gate=wide, up=wide)
        self.narrows = Projection(self, run, down=wide[::-1])

    def body(self, x: Any) -> Any:
        gate, up = self.widens(x)
        return self.narrows(ElementwiseMul(ACTIVATIONS[self.config.activation][0](gate), up))

    def twin(self, weights: Weights, x: Any) -> np.ndarray:
        gate, up = (self.times(weights, name, x) for name in ("gate", "up"))
        return self.times(weights, "down", ACTIVATIONS[self.config.activation][1](gate) * up)

    def times(self, weights: Weights, name: str, x: np.ndarray) -> np.ndarray:
        """The twin's product of x (rows, K) with one of this part's matrices, transposed."""
        return np.asarray(x @ widen(weights[name]).T)


class MLP(Part):
    """down(f(up x)). x: (rows, hidden_size), and the same shape comes out."""

    category = "feed-forward"

    up: Any
    down: Any

    def __init__(self, config: MLPConfig, run: Run) -> None:
        c = self.config = config
        self.run = run
        self.widens = Projection(self, run, up=(c.intermediate_size, c.hidden_size))
        self.narrows = Projection(self, run, down=(c.hidden_size, c.intermediate_size))
        self.up_bias = self.down_bias = None
        if c.bias:
            self.needs(up_bias=(c.intermediate_size,), down_bias=(c.hidden_size,))

    def body(self, x: Any) -> Any:
        wide = self.widens(x, bias=self.up_bias)
        return self.narrows(ACTIVATIONS[self.config.activation][0](wide), bias=self.down_bias)

    def twin(self, weights: Weights, x: Any) -> np.ndarray:
        def times(name: str, y: np.ndarray) -> np.ndarray:
            y = y @ widen(weights[name]).T
            return y + widen(weights[f"{name}_bias"]) if self.config.bias else y

        return times("down", ACTIVATIONS[self.config.activation][1](times("up", x)))
