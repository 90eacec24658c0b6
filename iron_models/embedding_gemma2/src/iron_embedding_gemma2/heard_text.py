"""`HeardText`: a text with a clip in it, from ids and samples to a vector, one graph."""

from __future__ import annotations

from typing import Any

import numpy as np

import iron_core as iron
from iron_embedding_gemma2 import names
from iron_embedding_gemma2.audio import Hearing
from iron_embedding_gemma2.config import TextConfig
from iron_embedding_gemma2.soft_text import SoftText
from iron_lm.blocks.log_mel import LogMelConfig
from iron_lm.checkpoints.sources import Names
from iron_lm.parts.part import Weights
from iron_lm.run import Run


class HeardText(SoftText):
    """ids: (max_seq_len,), of which a call has `rows`; samples: of a clip, of which it has `count` frames, and of which `heard`
    soft tokens are made, ceil(count / 4) -> (1, output_size)."""

    def __init__(self, config: TextConfig, sound: LogMelConfig, run: Run) -> None:
        assert config.audio is not None
        hearing = Hearing(config.audio, sound, config.hidden_size, run)
        super().__init__(config, run, heard=hearing.tower.tokens)
        self.hearing = hearing

    def body(
        self,
        ids: Any,
        samples: Any,
        *,
        rows: iron.Scratchpad[np.int32],
        count: iron.Scratchpad[np.int32],
        heard: iron.Scratchpad[np.int32],
    ) -> Any:
        return self.vector(ids, rows, heard=(self.hearing(samples, count=count, tokens=heard), heard))

    def twin(self, weights: Weights, ids: Any, samples: Any, count: int) -> np.ndarray:
        return self.vector_twin(weights, ids, audio=self.hearing.twin(self.inside(weights, "hearing"), samples, count))


def named(config: TextConfig) -> Names:
    """What its weights are called."""
    assert config.audio is not None
    text = {f"text.{path}": source for path, source in names.text(config).items()}
    return text | {f"hearing.tower.{path}": source for path, source in names.audio(config.audio).items()}
