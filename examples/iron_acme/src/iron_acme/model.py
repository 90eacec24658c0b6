"""`AcmeTiny`: a family of language models.

A Llama whose feed-forward is two matrices with a squared ReLU between them. `--random-weights 0` runs `full_size()` with drawn
weights; a checkpoint whose config.json has the `model_type` acme_tiny is found by that.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from iron_lm import Family
from iron_lm.decoder_config import DecoderConfig
from iron_lm.parts.layer import Layer
from iron_lm.parts.part import Part, Weights, widen
from iron_lm.parts.projection import Projection
from iron_lm.parts.rotary import Rotary, RotaryConfig
from iron_lm.run import Run

from iron_acme import SquaredReLU


class FeedForward(Part):
    """down(f(up x)). x: (rows, hidden), and the same shape comes out. `body` is the graph's; `twin` says the same in numpy."""

    category = "feed-forward"

    def __init__(self, hidden: int, intermediate: int, run: Run) -> None:
        self.widens = Projection(self, run, up=(intermediate, hidden))
        self.narrows = Projection(self, run, down=(hidden, intermediate))

    def body(self, x: Any) -> Any:
        return self.narrows(SquaredReLU(self.widens(x)))

    def twin(self, weights: Weights, x: Any) -> np.ndarray:
        y = np.maximum(x @ widen(weights["up"]).T, 0)
        return np.asarray(y * y @ widen(weights["down"]).T)


class AcmeTiny(Family):
    """`iron-run acme-tiny`."""

    name = "acme-tiny"
    summary = "A Llama with a squared ReLU in its feed-forward."
    architectures = ("acme_tiny",)
    absent = {"num_key_value_heads": 2, "rope_theta": 10000.0, "rms_norm_eps": 1e-5, "tie_word_embeddings": True}

    @classmethod
    def layer(cls, config: DecoderConfig, run: Run, i: int, rotary: Rotary | None) -> Layer:
        ffn = FeedForward(config.hidden_size, config.intermediate_size, run)
        return Layer(cls.mixer(config, run, i, rotary), ffn, mixer_norm=cls.norm(config), ffn_norm=cls.norm(config))

    @classmethod
    def full_size(cls) -> DecoderConfig:
        """Two layers, for trying it out."""
        return DecoderConfig(
            name="Acme tiny",
            vocab_size=256, hidden_size=64, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=16,
            intermediate_size=128, max_positions=256, rotary=RotaryConfig(16, 10000.0), norm_epsilon=1e-5,
        )  # fmt: skip
