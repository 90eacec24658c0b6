"""`EncoderLayer`: a layer of an encoder, which takes all rows of a text at once."""

from __future__ import annotations

from typing import Any

import numpy as np

import iron_core as iron
from iron_lm.parts.layer import Layer, normed
from iron_lm.parts.part import Weights, bounded
from iron_ops_aie import ElementwiseAdd


class EncoderLayer(Layer):
    """x + mixer(x), then x + ffn(x), with norms as `Layer` has them; its mixer takes `rows`, of which x has as many that count."""

    def body(  # type: ignore[override]  # no place
        self, x: Any, angles: Any = None, spans: Any = None, *, rows: iron.Scratchpad[np.int32]
    ) -> Any:
        x = bounded(x, rows)
        x = ElementwiseAdd(x, normed(self.mixer_norm_after, self.mixing(normed(self.mixer_norm, x), angles, rows, spans)))
        return ElementwiseAdd(x, normed(self.ffn_norm_after, self.ffn(normed(self.ffn_norm, x))))

    def mixing(self, x: Any, angles: Any, rows: Any, spans: Any = None) -> Any:
        """What the mixer makes of x, with the angles where it turns; spans of several texts."""
        turns = {} if self.rotary is None else {"angles": bounded(angles, rows)}
        return self.mixer(x, **turns, **({} if spans is None else {"spans": spans}), rows=rows)


class PostNormLayer(EncoderLayer):
    """norm(x + mixer(x)), then norm(x + ffn(x)): what the first transformers had. Its norms are `mixer_norm` and `ffn_norm`."""

    def body(  # type: ignore[override]  # as above
        self, x: Any, angles: Any = None, spans: Any = None, *, rows: iron.Scratchpad[np.int32]
    ) -> Any:
        x = bounded(x, rows)
        x = normed(self.mixer_norm, ElementwiseAdd(x, self.mixing(x, angles, rows, spans)))
        return normed(self.ffn_norm, ElementwiseAdd(x, self.ffn(x)))

    def twin(self, weights: Weights, x: Any, positions: Any) -> np.ndarray:
        x = self.normed_twin(weights, "mixer_norm", x + self.mixer.twin(self.inside(weights, "mixer"), x, positions))
        return self.normed_twin(weights, "ffn_norm", x + self.ffn.twin(self.inside(weights, "ffn"), x))
