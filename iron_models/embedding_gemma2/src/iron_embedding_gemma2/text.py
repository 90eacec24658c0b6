"""`TextTower`: an encoder that makes a vector of a text, whose tokens may be soft ones."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from iron_embedding_gemma2.config import TextConfig
from iron_embedding_gemma2.text_layer import Signal, SignalBlock, TextLayer
from iron_lm.fields import counted
from iron_lm.parts.bidirectional import BidirectionalAttention
from iron_lm.parts.embedding import Embedding
from iron_lm.parts.encoder import Encoder
from iron_lm.parts.mlp import GatedMLP
from iron_lm.parts.norm import Norm, NormConfig
from iron_lm.parts.part import Part, Weights, widen
from iron_lm.parts.projection import Projection
from iron_lm.parts.rotary import Rotary
from iron_lm.run import Run


@attrs.frozen
class WideningConfig:
    """Numbers that go in, and that come out."""

    hidden_size: int = attrs.field(validator=counted)
    output_size: int = attrs.field(validator=counted)


class Widening(Part):
    """W x of each row. x: (rows, hidden_size) -> (rows, output_size)."""

    matrix: Any

    def __init__(self, config: WideningConfig, run: Run) -> None:
        self.config = config
        self.product = Projection(self, run, matrix=(config.output_size, config.hidden_size))

    def body(self, x: Any) -> Any:
        return self.product(x)

    def twin(self, weights: Weights, x: Any) -> np.ndarray:
        return np.asarray(x @ widen(weights["matrix"]).T)


class TextTower(Encoder):
    """As `Encoder`: ids (max_seq_len,), of which a call has `rows` -> (1, output_size), the mean of what is said of each token; with
    pooling None that of each, (rows, output_size). Each layer is told of the embeddings too."""

    layers: list[TextLayer]  # type: ignore[assignment]
    norm: Norm

    def __init__(self, config: TextConfig, run: Run) -> None:
        c = self.config = config
        assert c.rotary is not None
        every, local = Rotary(c.rotary, run), Rotary(c.local_rotary, run)
        # Of numbers that are not divided by the root of the hidden size before.
        said = Norm(NormConfig(c.signal_size, c.norm_epsilon * c.hidden_size))

        def layer(i: int) -> TextLayer:
            mixer = BidirectionalAttention(c.encoding_attention(i), run, local if c.slides(i) else every)
            block = SignalBlock(c.signal(), run, c.norm())
            return TextLayer(mixer, GatedMLP(c.mlp(), run), Signal(c.signal(), run, said), block, c.norm())

        head = Widening(WideningConfig(c.hidden_size, c.output_size), run)
        embedding = Embedding(c.embedding(c.hidden_size**0.5), run)
        super().__init__(run, embedding, [layer(i) for i in range(c.num_layers)], Norm(c.norm()), pooling=c.pooling, head=head)

    def encoded(self, x: Any, rows: Any) -> Any:  # type: ignore[override]  # of one text
        rotaries = {id(layer.rotary): layer.rotary for layer in self.layers}
        embedded, angles = x, {key: rotary.first(rows) for key, rotary in rotaries.items()}
        for layer in self.layers:
            x = layer(x, angles[id(layer.rotary)], embedded, rows=rows)
        return self.norm(x)

    def states_twin(self, weights: Weights, ids: Any) -> np.ndarray:
        return self.encoded_twin(weights, self.embedding.twin(self.inside(weights, "embedding"), ids))

    def encoded_twin(self, weights: Weights, x: Any) -> np.ndarray:
        """As `encoded`, in float32 numpy: x (n, hidden_size) may be of soft tokens."""
        embedded, positions = x, np.arange(len(x))
        for i, layer in enumerate(self.layers):
            x = layer.twin(self.inside(weights, f"layers.{i}"), x, positions, embedded)
        return np.asarray(self.norm.twin(self.inside(weights, "norm"), x))
