"""`ShownText`: a text with a video in it, whose frames are soft tokens already, one graph."""

from __future__ import annotations

from typing import Any

import numpy as np

import iron_core as iron
from iron_embedding_gemma2 import names
from iron_embedding_gemma2.config import TextConfig
from iron_embedding_gemma2.soft_text import SoftText
from iron_lm.checkpoints.sources import Names
from iron_lm.parts.part import Weights
from iron_lm.run import Run


class ShownText(SoftText):
    """ids: (max_seq_len,), of which a call has `rows`; soft: (max_seq_len, hidden_size), of which it has `tokens`, frame after frame,
    as a `VisionTower` makes them of each -> (1, output_size). How many frames a video has differs: their tower is called for each."""

    def __init__(self, config: TextConfig, run: Run) -> None:
        super().__init__(config, run, seen=run.max_seq_len, seen_mark="video")

    def body(self, ids: Any, soft: Any, *, rows: iron.Scratchpad[np.int32], tokens: iron.Scratchpad[np.int32]) -> Any:
        return self.vector(ids, rows, seen=(soft[:tokens], tokens))

    def twin(self, weights: Weights, ids: Any, soft: np.ndarray) -> np.ndarray:
        """soft: of all frames, (tokens, hidden_size)."""
        return self.vector_twin(weights, ids, video=np.asarray(soft, np.float32))


def named(config: TextConfig) -> Names:
    """What its weights are called."""
    return {f"text.{path}": source for path, source in names.text(config).items()}
