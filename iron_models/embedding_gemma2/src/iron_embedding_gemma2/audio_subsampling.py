"""`Subsampling`: features of sound, four times as many as what comes out, through two convolutions."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

import iron_core as iron
from iron_core.declare.formats import as_dtype
from iron_embedding_gemma2.config import AudioConfig
from iron_lm.blocks.conv2d import Conv2d, Conv2dConfig
from iron_lm.parts.norm import Norm, NormConfig
from iron_lm.parts.part import Part, Weights, bounded, widen
from iron_lm.parts.projection import Projection
from iron_lm.run import Run
from iron_ops_aie import Copy, ReLU


class CentredConv2d(Conv2d):
    """A convolution whose channels have no mean, as what is divided by their spread after has: then a layer norm is an RMS norm."""

    def arranged(self, name: str, array: Any) -> Any:
        return super().arranged(name, widen(array) - widen(array).mean(0, keepdims=True) if name == "kernel" else array)

    def held(self, name: str, array: Any) -> Any:
        return iron.weight(self.arranged(name, array).astype(as_dtype(self.run.dtype)))


class Halving(Part):
    """relu(norm(conv x)) of the first `count` rows of a plane, of which every second is kept; those behind count as zeros.

    x: (height, width * in_channels) -> (ceil(height / 2), ceil(width / 2) * out_channels).
    """

    def __init__(self, height: int, width: int, channels: tuple[int, int], epsilon: float, run: Run) -> None:
        self.run = run
        self.convolution = CentredConv2d(
            Conv2dConfig(height=height, width=width, in_channels=channels[0], out_channels=channels[1], stride=(2, 2), padding=(1, 1)), run
        )
        self.norm = Norm(NormConfig(channels[1], epsilon))
        size, dtype = (height, width * channels[0]), as_dtype(run.dtype)
        self.plane, self.zeros = iron.state(size, dtype), iron.weight(np.zeros(size, dtype))

    def body(self, x: Any, *, count: iron.Scratchpad[np.int32]) -> Any:
        c = self.convolution.config
        Copy(self.zeros, self.plane)
        Copy(bounded(x, count), self.plane[:count])
        y = self.convolution(self.plane.reshape(c.height, c.width, c.in_channels))
        y = ReLU(self.norm(y.reshape(c.out_height * c.out_width, c.out_channels)))
        return y.reshape(c.out_height, c.out_width * c.out_channels)

    def twin(self, weights: Weights, x: Any) -> np.ndarray:
        """Of all rows of x."""
        kernel = widen(weights["convolution.kernel"]).astype(np.float64)
        x = np.asarray(x, np.float64).reshape(len(x), -1, kernel.shape[1])
        padded = np.pad(x, ((1, 2), (1, 2), (0, 0)))
        high, wide = -(-x.shape[0] // 2), -(-x.shape[1] // 2)
        y = np.zeros((high, wide, len(kernel)))
        for a, b in itertools.product(range(3), range(3)):
            y += padded[a : a + 2 * high : 2, b : b + 2 * wide : 2] @ kernel[:, :, a, b].T
        y = (y - y.mean(-1, keepdims=True)) / np.sqrt(y.var(-1, keepdims=True) + self.norm.config.epsilon)
        return np.maximum(y * widen(weights["norm.weight"]), 0).astype(np.float32).reshape(high, -1)


class Subsampling(Part):
    """features: (frames, mels), of which a call has `count` -> (tokens, hidden_size), tokens ceil(count / 4)."""

    matrix: Any

    def __init__(self, config: AudioConfig, frames: int, mels: int, run: Run) -> None:
        c = config
        self.first = Halving(frames, mels, (1, c.channels[0]), c.norm_epsilon, run)
        half = self.first.convolution.config
        self.second = Halving(half.out_height, half.out_width, c.channels, c.norm_epsilon, run)
        wide = self.second.convolution.config.out_width * c.channels[1]
        self.projected = Projection(self, run, matrix=(c.hidden_size, wide))

    def body(self, x: Any, *, count: iron.Scratchpad[np.int32], tokens: iron.Scratchpad[np.int32]) -> Any:
        y = self.second(self.first(x, count=count), count=(count + 1) // 2)
        return self.projected(y[:tokens])

    def twin(self, weights: Weights, x: Any) -> np.ndarray:
        y = self.first.twin(self.inside(weights, "first"), x)
        return np.asarray(self.second.twin(self.inside(weights, "second"), y) @ widen(weights["matrix"]).T)
