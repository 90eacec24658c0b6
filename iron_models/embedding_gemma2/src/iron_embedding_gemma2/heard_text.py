"""`HeardText`: a text with a clip in it, from ids and samples to a vector, one graph."""

from __future__ import annotations

from typing import Any

import numpy as np

import iron_core as iron
from iron_core.declare.formats import as_dtype
from iron_embedding_gemma2 import names
from iron_embedding_gemma2.audio import Hearing
from iron_embedding_gemma2.config import TextConfig
from iron_embedding_gemma2.text import TextTower
from iron_lm.blocks.log_mel import LogMelConfig
from iron_lm.checkpoints.sources import Names
from iron_lm.parts.part import Part, Weights
from iron_lm.run import Run
from iron_ops_aie import Copy, Merge


class HeardText(Part):
    """ids: (max_seq_len,), of which a call has `rows`; samples: of a clip, of which it has `count` frames -> (1, output_size).

    The clip's soft tokens take, one after the other, the places of the ids that stand for them, of which there are as many.
    """

    def __init__(self, config: TextConfig, sound: LogMelConfig, run: Run) -> None:
        assert config.audio is not None
        self.config, self.run = config, run
        self.text = TextTower(config, run)
        self.hearing = Hearing(config.audio, sound, config.hidden_size, run)
        #: The text's embeddings, by their place, and behind them the soft tokens.
        self.table = iron.state((run.max_seq_len + self.hearing.tower.tokens, config.hidden_size), as_dtype(run.dtype))

    def body(self, ids: Any, samples: Any, *, rows: iron.Scratchpad[np.int32], count: iron.Scratchpad[np.int32]) -> Any:
        first, marks = self.run.max_seq_len, self.config.marks
        Copy(self.text.embedded(ids, rows), self.table[:first][:rows])
        Copy(self.hearing(samples, count=count), self.table[first:][: (count + 3) // 4])
        places = Merge(ids, audio_token=marks.audio, image_token=marks.image, audio_at=first, vision_at=first)
        x = Copy(self.table[places])[:rows]
        return self.text.vector(self.text.encoded(x, rows), rows)

    def twin(self, weights: Weights, ids: Any, samples: Any, count: int) -> np.ndarray:
        text, ids = self.inside(weights, "text"), np.asarray(ids)
        x = self.text.embedding.twin(self.text.inside(text, "embedding"), ids)
        x[ids == self.config.marks.audio] = self.hearing.twin(self.inside(weights, "hearing"), samples, count)
        x = self.text.encoded_twin(text, x).mean(0, dtype=np.float64).astype(np.float32)[None]
        head = self.text.head
        assert head is not None
        return np.asarray(head.twin(self.text.inside(text, "head"), x))


def named(config: TextConfig) -> Names:
    """What its weights are called."""
    assert config.audio is not None
    text = {f"text.{path}": source for path, source in names.text(config).items()}
    return text | {f"hearing.tower.{path}": source for path, source in names.audio(config.audio).items()}
