"""A layer of the vision tower: attention and a gated feed-forward, whose products may each be held between bounds."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from iron_embedding_gemma2.bounds import Bounds
from iron_embedding_gemma2.config import VisionConfig
from iron_lm.parts.attention import AttentionConfig
from iron_lm.parts.axial_rotary import AxialRotary
from iron_lm.parts.bidirectional import BidirectionalAttention
from iron_lm.parts.encoder_layer import EncoderLayer
from iron_lm.parts.mlp import GatedMLP, GatedMLPConfig
from iron_lm.parts.norm import Norm, NormConfig
from iron_lm.parts.part import Weights
from iron_lm.parts.projection import Projection, project
from iron_lm.run import Run


class BoundedProjection:
    """As `Projection`, of a part whose `bounds` has some for each of its matrices."""

    def __init__(self, part: Any, projection: Projection) -> None:
        self.part, self.names = part, projection.names

    def __call__(self, x: Any, bias: Any = None) -> Any:
        """x (rows, K) -> (rows, N), a tuple of them of several matrices. bias: None, these have no biases."""
        assert bias is None
        bounds = self.part.bounds
        found = tuple(bounds[name].output(project(bounds[name].input(x), getattr(self.part, name))) for name in self.names)
        return found if len(found) > 1 else found[0]


class _Bounded:
    """What the two parts below share: `times` of their twins."""

    bounds: dict[str, Bounds]

    def times(self, weights: Weights, name: str, x: np.ndarray) -> np.ndarray:
        bounds, own = self.bounds[name], self.inside(weights, f"bounds.{name}")  # type: ignore[attr-defined]
        y: np.ndarray = super().times(weights, name, bounds.input_twin(own, x))  # type: ignore[misc]
        return bounds.output_twin(own, y)


class BoundedAttention(_Bounded, BidirectionalAttention):
    """As `BidirectionalAttention`, each of its four products between bounds of its own."""

    def __init__(self, config: AttentionConfig, run: Run, rotary: AxialRotary) -> None:
        super().__init__(config, run, rotary)
        self.bounds = {name: Bounds() for name in "qkvo"}
        self.qkv, self.out = BoundedProjection(self, self.qkv), BoundedProjection(self, self.out)  # type: ignore[assignment]


class BoundedMLP(_Bounded, GatedMLP):
    """As `GatedMLP`, each of its three products between bounds of its own."""

    def __init__(self, config: GatedMLPConfig, run: Run) -> None:
        super().__init__(config, run)
        self.bounds = {name: Bounds() for name in ("gate", "up", "down")}
        self.widens = BoundedProjection(self, self.widens)  # type: ignore[assignment]
        self.narrows = BoundedProjection(self, self.narrows)  # type: ignore[assignment]


def vision_layer(config: VisionConfig, rotary: AxialRotary, run: Run) -> EncoderLayer:
    """One layer of a tower of this config."""
    c, each = config, NormConfig(config.head_dim, config.norm_epsilon)
    normed: dict[str, Any] = dict(q_norm=each, k_norm=each, v_norm=attrs.evolve(each, weight=False))
    heads = AttentionConfig(c.hidden_size, c.num_heads, c.num_heads, c.head_dim, scale=1.0, **normed)
    mixer, ffn = (BoundedAttention, BoundedMLP) if c.clipped else (BidirectionalAttention, GatedMLP)
    norms = ("mixer_norm", "mixer_norm_after", "ffn_norm", "ffn_norm_after")
    return EncoderLayer(
        mixer(heads, run, rotary),
        ffn(GatedMLPConfig(c.hidden_size, c.intermediate_size, "gelu_tanh"), run),
        **{name: Norm(NormConfig(c.hidden_size, c.norm_epsilon)) for name in norms},
    )
