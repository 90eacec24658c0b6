"""`TextLayer`: attention and a gated feed-forward between norms, and what the embeddings say to this layer."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

import iron_core as iron
from iron_core.declare.formats import as_dtype
from iron_lm.fields import counted
from iron_lm.parts.bidirectional import BidirectionalAttention
from iron_lm.parts.encoder_layer import EncoderLayer
from iron_lm.parts.mlp import GatedMLP
from iron_lm.parts.norm import Norm, NormConfig
from iron_lm.parts.part import Part, Weights, bounded, widen
from iron_lm.parts.projection import Projection
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


class TextLayer(EncoderLayer):
    """x + norm(attention(norm x)), then x + norm(feed-forward(norm x)), then the signal's block; all of it times `scalar`.

    x: (rows, hidden_size), and the same shape comes out. embedded: the embeddings that the first layer was given.
    """

    scalar: Any

    def __init__(self, mixer: BidirectionalAttention, ffn: GatedMLP, signal: Signal, block: SignalBlock, norm: NormConfig) -> None:
        norms = ("mixer_norm", "mixer_norm_after", "ffn_norm", "ffn_norm_after")
        super().__init__(mixer, ffn, **{name: Norm(norm) for name in norms})
        self.signal, self.block, self.run = signal, block, mixer.run
        self.needs(scalar=(1,))

    def arranged(self, name: str, array: Any) -> Any:
        """The scalar as a row of it."""
        return np.repeat(np.asarray(array), self.signal.config.hidden_size)

    def held(self, name: str, array: Any) -> Any:
        """In the dtype that rows have, whatever the file's is."""
        return iron.weight(self.arranged(name, array).astype(as_dtype(self.run.dtype)))

    def body(self, x: Any, angles: Any, embedded: Any, *, rows: iron.Scratchpad[np.int32]) -> Any:  # type: ignore[override]
        x = super().body(x, angles, rows=rows)
        return RowwiseMul(self.block(x, self.signal(bounded(embedded, rows))), self.scalar)

    def twin(self, weights: Weights, x: Any, positions: Any, embedded: Any = None) -> np.ndarray:
        x = super().twin(weights, x, positions)
        signal = self.signal.twin(self.inside(weights, "signal"), embedded)
        return np.asarray(self.block.twin(self.inside(weights, "block"), x, signal) * widen(weights["scalar"]))
