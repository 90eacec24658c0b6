"""`TextLayer`: attention and a gated feed-forward between norms, and what the embeddings say to this layer."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

import iron_core as iron
from iron_embedding_gemma2.text_attention import TextAttention, TextAttentionConfig
from iron_lm.fields import counted
from iron_lm.parts.mlp import GatedMLP, GatedMLPConfig
from iron_lm.parts.norm import Norm, NormConfig
from iron_lm.parts.part import Part, Weights, widen
from iron_lm.parts.projection import Projection
from iron_lm.parts.rotary import Rotary
from iron_lm.run import Run
from iron_ops_aie import GELU, ElementwiseAdd, ElementwiseMul, RowwiseMul


@attrs.frozen
class SignalConfig:
    """size: numbers that the embeddings say to each layer about a token."""

    hidden_size: int = attrs.field(validator=counted)
    size: int = attrs.field(validator=counted)


class Signal(Part):
    """What a token's embedding alone says to one layer: norm(W x / sqrt(hidden_size)). x: (rows, hidden_size) -> (rows, size).

    norm: its weight is that of all layers; what it is given is not divided, so its epsilon is hidden_size times theirs.
    """

    matrix: Any

    def __init__(self, config: SignalConfig, run: Run, norm: Norm) -> None:
        self.config, self.norm = config, norm
        self.made = Projection(self, run, matrix=(config.size, config.hidden_size))

    def body(self, x: Any) -> Any:
        return self.norm(self.made(x))

    def twin(self, weights: Weights, x: Any) -> np.ndarray:
        y = x @ widen(weights["matrix"]).T
        return np.asarray(self.norm.twin(self.inside(weights, "norm"), y))


class SignalBlock(Part):
    """x + norm(W (gelu(G x) * signal)). x: (rows, hidden_size), and the same shape comes out."""

    gate: Any
    out: Any

    def __init__(self, config: SignalConfig, run: Run, norm: NormConfig) -> None:
        self.config = config
        self.gated = Projection(self, run, gate=(config.size, config.hidden_size))
        self.widened = Projection(self, run, out=(config.hidden_size, config.size))
        self.norm = Norm(norm)

    def body(self, x: Any, signal: Any) -> Any:
        return ElementwiseAdd(x, self.norm(self.widened(ElementwiseMul(GELU(self.gated(x)), signal))))

    def twin(self, weights: Weights, x: Any, signal: Any) -> np.ndarray:
        y = x @ widen(weights["gate"]).T
        y = 0.5 * y * (1 + np.tanh(np.float32(np.sqrt(2 / np.pi)) * (y + np.float32(0.044715) * y**3)))
        return np.asarray(x + self.norm.twin(self.inside(weights, "norm"), y * signal @ widen(weights["out"]).T))


class TextLayer(Part):
    """x + norm(attention(norm x)), then x + norm(feed-forward(norm x)), then the signal's block; all of it times `scalar`.

    x: (rows, hidden_size), and the same shape comes out. embedded: the embeddings that the first layer was given.
    """

    scalar: Any

    def __init__(
        self, attention: TextAttentionConfig, mlp: GatedMLPConfig, signal: SignalConfig, run: Run, rotary: Rotary, signal_norm: Norm
    ) -> None:
        norm = NormConfig(attention.hidden_size, attention.epsilon)
        self.mixer_norm, self.mixer_norm_after, self.ffn_norm, self.ffn_norm_after = (Norm(norm) for _ in range(4))
        self.mixer = TextAttention(attention, run, rotary)
        self.ffn = GatedMLP(mlp, run)
        self.signal = Signal(signal, run, signal_norm)
        self.block = SignalBlock(signal, run, norm)
        self.needs(scalar=(1,))

    @property
    def rotary(self) -> Rotary:
        return self.mixer.rotary

    def arranged(self, name: str, array: Any) -> Any:
        """The scalar as a row of it."""
        return np.repeat(np.asarray(array), self.mixer.config.hidden_size)

    def body(self, x: Any, angles: Any, embedded: Any, *, rows: iron.Scratchpad[np.int32]) -> Any:
        x, angles, embedded = (y if y.bounds else y[:rows] for y in (x, angles, embedded))
        x = ElementwiseAdd(x, self.mixer_norm_after(self.mixer(self.mixer_norm(x), angles, rows=rows)))
        x = ElementwiseAdd(x, self.ffn_norm_after(self.ffn(self.ffn_norm(x))))
        return RowwiseMul(self.block(x, self.signal(embedded)), self.scalar)

    def twin(self, weights: Weights, x: Any, embedded: Any, positions: Any) -> np.ndarray:
        def of(name: str, *given: Any) -> np.ndarray:
            return np.asarray(getattr(self, name).twin(self.inside(weights, name), *given))

        x = x + of("mixer_norm_after", of("mixer", of("mixer_norm", x), positions))
        x = x + of("ffn_norm_after", of("ffn", of("ffn_norm", x)))
        return of("block", x, of("signal", embedded)) * widen(weights["scalar"])
