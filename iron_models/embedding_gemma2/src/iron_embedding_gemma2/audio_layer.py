"""`AudioLayer`: a conformer's layer: half a feed-forward, attention, a light convolution, the other half, a norm."""

from __future__ import annotations

from typing import Any

import numpy as np

import iron_core as iron
from iron_embedding_gemma2.audio_attention import AudioAttention, Band
from iron_embedding_gemma2.clipped_linear import ClippedLinear, ClippedLinearConfig
from iron_embedding_gemma2.config import AudioConfig
from iron_lm.parts.norm import Norm, NormConfig
from iron_lm.parts.part import Part, Weights, bounded, widen
from iron_lm.run import Run
from iron_ops_aie import AXPY, DepthwiseConv1d, ElementwiseAdd, ElementwiseMul, Sigmoid, SiLU
from iron_ops_aie.logistic import logistic, silu

#: A feed-forward is so many times as wide as what goes through.
WIDER = 4


class HalfFeedForward(Part):
    """x + residual * norm(W (silu(V norm x))). x: (rows, hidden_size), and the same shape comes out."""

    def __init__(self, config: AudioConfig, run: Run) -> None:
        c = self.config = config
        self.norm_before, self.norm_after = (Norm(NormConfig(c.hidden_size, c.norm_epsilon)) for _ in range(2))
        self.widens = ClippedLinear(ClippedLinearConfig(c.hidden_size, WIDER * c.hidden_size, clipped=c.clipped), run)
        self.narrows = ClippedLinear(ClippedLinearConfig(WIDER * c.hidden_size, c.hidden_size, clipped=c.clipped), run)

    def body(self, x: Any) -> Any:
        y = self.narrows(SiLU(self.widens(self.norm_before(x))))
        return AXPY(self.norm_after(y), x, scalar_factor=self.config.residual)

    def twin(self, weights: Weights, x: Any) -> np.ndarray:
        y = _of(self, weights, "widens", _of(self, weights, "norm_before", x))
        y = _of(self, weights, "norm_after", _of(self, weights, "narrows", silu(y)))
        return np.asarray(x + np.float32(self.config.residual) * y)


class LightConvolution(Part):
    """x + W silu(norm(conv(a * sigmoid(b)))), a and b made of norm(x). x: (rows, hidden_size), and the same shape comes out.

    Each number is convolved over the tokens up to its own by `taps` weights of its own.
    """

    kernel: Any

    def __init__(self, config: AudioConfig, run: Run) -> None:
        c = self.config = config
        self.norm_before, self.norm_after = (Norm(NormConfig(c.hidden_size, c.norm_epsilon)) for _ in range(2))
        self.starts = ClippedLinear(ClippedLinearConfig(c.hidden_size, c.hidden_size, parts=2, clipped=c.clipped), run)
        self.ends = ClippedLinear(ClippedLinearConfig(c.hidden_size, c.hidden_size, clipped=c.clipped), run)
        self.needs(kernel=(c.hidden_size, 1, c.taps))

    def arranged(self, name: str, array: Any) -> Any:
        """A row for each tap, the oldest first."""
        return np.ascontiguousarray(np.asarray(array)[:, 0].T)

    def body(self, x: Any) -> Any:
        c = self.config
        a, b = self.starts(self.norm_before(x))
        y = DepthwiseConv1d(ElementwiseMul(a, Sigmoid(b)), self.kernel, taps=c.taps)
        return ElementwiseAdd(x, self.ends(SiLU(self.norm_after(y))))

    def twin(self, weights: Weights, x: Any) -> np.ndarray:
        a, b = _of(self, weights, "starts", _of(self, weights, "norm_before", x))
        y, taps = a * logistic(b), widen(weights["kernel"])[:, 0].T
        padded = np.concatenate([np.zeros((len(taps) - 1, y.shape[1]), np.float32), y])
        y = sum(tap * padded[i : i + len(x)] for i, tap in enumerate(taps))
        y = _of(self, weights, "norm_after", y)
        return np.asarray(x + _of(self, weights, "ends", silu(y)))


class AudioLayer(Part):
    """x: (rows, hidden_size), and the same shape comes out. The tower's clamps at 1e10 are left out: they guard training."""

    def __init__(self, config: AudioConfig, run: Run, band: Band) -> None:
        norm = NormConfig(config.hidden_size, config.norm_epsilon)
        self.first = HalfFeedForward(config, run)
        self.mixer_norm, self.mixer_norm_after, self.norm = (Norm(norm) for _ in range(3))
        self.mixer = AudioAttention(config, run, band)
        self.convolution = LightConvolution(config, run)
        self.second = HalfFeedForward(config, run)

    def body(self, x: Any, *, rows: iron.Scratchpad[np.int32]) -> Any:
        x = self.first(bounded(x, rows))
        x = ElementwiseAdd(x, self.mixer_norm_after(self.mixer(self.mixer_norm(x), rows=rows)))
        return self.norm(self.second(self.convolution(x)))

    def twin(self, weights: Weights, x: Any) -> np.ndarray:
        x = _of(self, weights, "first", x)
        x = x + _of(self, weights, "mixer_norm_after", _of(self, weights, "mixer", _of(self, weights, "mixer_norm", x)))
        return np.asarray(_of(self, weights, "norm", _of(self, weights, "second", _of(self, weights, "convolution", x))))


def _of(part: Part, weights: Weights, name: str, x: Any) -> Any:
    """What the twin of the part that `part` holds under a name makes of x."""
    return getattr(part, name).twin(part.inside(weights, name), x)
