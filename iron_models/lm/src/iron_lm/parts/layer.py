"""`Layer`: a mixer and a feed-forward, each with its norms, added to what goes through."""

from __future__ import annotations

from typing import Any

import numpy as np

import iron_core as iron
from iron_lm.parts.part import Part, Weights, bounded, check_held
from iron_ops_aie import ElementwiseAdd


class Layer(Part):
    """x + mixer(x), then x + ffn(x). x: (rows, hidden_size), and the same shape comes out.

    A norm before is of what goes into the mixer or the feed-forward, one after of what it gives, before that is added;
    each may be None. The mixer takes the per-call values, and its rotary embedding's angles where it has `rotary`. A subclass
    that puts them together otherwise has a body and a twin of its own, which take the same. DeclarationError for what is no part.
    """

    category = "residuals"

    def __init__(
        self,
        mixer: Part,
        ffn: Part,
        *,
        mixer_norm: Part | None = None,
        ffn_norm: Part | None = None,
        mixer_norm_after: Part | None = None,
        ffn_norm_after: Part | None = None,
    ) -> None:
        norms = dict(mixer_norm=mixer_norm, ffn_norm=ffn_norm, mixer_norm_after=mixer_norm_after, ffn_norm_after=ffn_norm_after)
        check_held(type(self).__name__, Part, mixer=mixer, ffn=ffn, **{name: norm for name, norm in norms.items() if norm is not None})
        self.mixer_norm, self.mixer, self.mixer_norm_after = mixer_norm, mixer, mixer_norm_after
        self.ffn_norm, self.ffn, self.ffn_norm_after = ffn_norm, ffn, ffn_norm_after

    @property
    def rotary(self) -> Any:
        """The mixer's rotary embedding, or None."""
        return getattr(self.mixer, "rotary", None)

    def body(
        self,
        x: Any,
        angles: Any = None,
        *,
        chunk: iron.Scratchpad[np.int32],
        rows: iron.Scratchpad[np.int32],
        position: iron.Scratchpad[np.int32],
    ) -> Any:
        x, angles = bounded(x, rows), bounded(angles, rows)
        y = normed(self.mixer_norm, x)
        given = (y,) if self.rotary is None else (y, angles)
        y = self.mixer(*given, chunk=chunk, rows=rows, position=position)
        x = ElementwiseAdd(x, normed(self.mixer_norm_after, y))
        y = self.ffn(normed(self.ffn_norm, x))
        return ElementwiseAdd(x, normed(self.ffn_norm_after, y))

    def twin(self, weights: Weights, x: Any, positions: Any) -> np.ndarray:
        y = self.mixer.twin(self.inside(weights, "mixer"), self.normed_twin(weights, "mixer_norm", x), positions)
        x = x + self.normed_twin(weights, "mixer_norm_after", y)
        y = self.ffn.twin(self.inside(weights, "ffn"), self.normed_twin(weights, "ffn_norm", x))
        return np.asarray(x + self.normed_twin(weights, "ffn_norm_after", y))

    def normed_twin(self, weights: Weights, name: str, y: np.ndarray) -> np.ndarray:
        """y, or what the twin of the norm of this name makes of it."""
        norm = getattr(self, name)
        return y if norm is None else np.asarray(norm.twin(self.inside(weights, name), y))


def normed(norm: Part | None, x: Any) -> Any:
    """x, or its norm where there is one."""
    return x if norm is None else norm(x)
