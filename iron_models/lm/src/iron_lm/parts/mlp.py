"""`GatedMLP`: the feed-forward of llama-like models."""

from __future__ import annotations

import math
from typing import Any

import attrs
import numpy as np

from iron_core.errors import ParamError
from iron_lm.parts.part import Part, Weights, widen
from iron_lm.parts.projection import project
from iron_lm.run import Run
from iron_ops_aie import GELU, ElementwiseMul, SiLU


def _silu(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.asarray(x / (1 + np.exp(-x)))


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    return np.asarray(0.5 * x * (1 + np.tanh(np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x**3))))


#: What the gate goes through, by name: the operator, and the same in numpy.
GATES: dict[str, tuple[Any, Any]] = {"silu": (SiLU, _silu), "gelu_tanh": (GELU, _gelu_tanh)}


@attrs.frozen
class GatedMLPConfig:
    """activation: one of `GATES`."""

    hidden_size: int
    intermediate_size: int
    activation: str = "silu"

    def __attrs_post_init__(self) -> None:
        for field in ("hidden_size", "intermediate_size"):
            if getattr(self, field) < 1:
                raise ParamError(f"GatedMLPConfig: {field}={getattr(self, field)}; legal: 1 or more.")
        if self.activation not in GATES:
            raise ParamError(f"GatedMLPConfig: activation={self.activation!r}; legal: {', '.join(sorted(GATES))}.")


class GatedMLP(Part):
    """down(f(gate x) * up x). x: (rows, hidden_size), and the same shape comes out."""

    gate: Any
    up: Any
    down: Any

    def __init__(self, config: GatedMLPConfig, run: Run) -> None:
        self.config, self.run = config, run
        wide = (config.intermediate_size, config.hidden_size)
        self.needs(gate=wide, up=wide, down=wide[::-1])

    def body(self, x: Any) -> Any:
        gate, up = (project(x, matrix, self.run.activations) for matrix in (self.gate, self.up))
        return project(ElementwiseMul(GATES[self.config.activation][0](gate), up), self.down, self.run.activations)

    def twin(self, weights: Weights, x: Any) -> np.ndarray:
        gate, up = (x @ widen(weights[name]).T for name in ("gate", "up"))
        return np.asarray(GATES[self.config.activation][1](gate) * up @ widen(weights["down"]).T)
