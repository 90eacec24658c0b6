"""`AudioTower`: what is heard, as tokens of a text's encoder."""

from __future__ import annotations

from typing import Any

import numpy as np

import iron_core as iron
from iron_embedding_gemma2.audio_attention import Band
from iron_embedding_gemma2.audio_layer import AudioLayer
from iron_embedding_gemma2.audio_subsampling import Subsampling
from iron_embedding_gemma2.config import AudioConfig
from iron_lm.blocks.log_mel import LogMel, LogMelConfig
from iron_lm.parts.norm import Norm, NormConfig
from iron_lm.parts.part import Part, Weights, widen
from iron_lm.parts.projection import Projection, biased
from iron_lm.run import Run


class AudioTower(Part):
    """features: (frames, mels) as `LogMel` makes them, of which a call has `count` -> (tokens, text_size), tokens ceil(count / 4)."""

    output: Any
    output_bias: Any
    embedded: Any

    def __init__(self, config: AudioConfig, frames: int, mels: int, text_size: int, run: Run) -> None:
        c = self.config = config
        self.subsampling = Subsampling(c, frames, mels, run)
        self.tokens = self.subsampling.second.convolution.config.out_height
        band = Band(c, self.tokens, run)
        self.layers = [AudioLayer(c, run, band) for _ in range(c.num_layers)]
        self.finished = Projection(self, run, output=(c.output_size, c.hidden_size))
        self.needs(output_bias=(c.output_size,))
        self.norm = Norm(NormConfig(c.output_size, c.norm_epsilon, weight=False))
        self.projected = Projection(self, run, embedded=(text_size, c.output_size))

    def body(self, x: Any, *, count: iron.Scratchpad[np.int32], tokens: iron.Scratchpad[np.int32]) -> Any:
        x = self.subsampling(x, count=count, tokens=tokens)
        for layer in self.layers:
            x = layer(x, rows=tokens)
        return self.projected(self.norm(biased(self.finished(x), self.output_bias)))

    def twin(self, weights: Weights, x: Any) -> np.ndarray:
        x = self.subsampling.twin(self.inside(weights, "subsampling"), x)
        for i, layer in enumerate(self.layers):
            x = layer.twin(self.inside(weights, f"layers.{i}"), x)
        x = x @ widen(weights["output"]).T + widen(weights["output_bias"])
        return np.asarray(self.norm.twin({}, x) @ widen(weights["embedded"]).T)


class Hearing(Part):
    """samples: of a clip, as `LogMelConfig.laid` lays them, of which `count` frames are the clip's -> (tokens, text_size), as
    `AudioTower`."""

    def __init__(self, config: AudioConfig, sound: LogMelConfig, text_size: int, run: Run) -> None:
        self.features = LogMel(sound, run)
        self.tower = AudioTower(config, sound.frames, sound.mels, text_size, run)

    def body(self, samples: Any, *, count: iron.Scratchpad[np.int32], tokens: iron.Scratchpad[np.int32]) -> Any:
        return self.tower(self.features(samples, frames=count), count=count, tokens=tokens)

    def twin(self, weights: Weights, samples: Any, count: int) -> np.ndarray:
        features = self.features.twin({}, samples)[:count]
        return self.tower.twin(self.inside(weights, "tower"), features)
