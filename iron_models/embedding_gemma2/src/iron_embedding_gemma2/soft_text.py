"""`SoftText`: a text among whose tokens a clip's and an image's soft tokens stand, one graph."""

from __future__ import annotations

from typing import Any

import numpy as np

import iron_core as iron
from iron_core.declare.formats import as_dtype
from iron_embedding_gemma2.config import TextConfig
from iron_embedding_gemma2.text import TextTower
from iron_lm.parts.part import Part, Weights
from iron_lm.run import Run
from iron_ops_aie import Copy, Merge


class SoftText(Part):
    """A subclass holds the towers, and gives `vector()` what they make. heard, seen: soft tokens at most of a clip, and of an image or
    a video; seen_mark: which of the two, by the field of `Marks`.

    Soft tokens take, one after the other, the places of the ids that stand for them, of which there are as many.
    """

    def __init__(self, config: TextConfig, run: Run, *, heard: int = 0, seen: int = 0, seen_mark: str = "image") -> None:
        self.config, self.run = config, run
        self.seen_token = getattr(config.marks, seen_mark)
        self.text = TextTower(config, run)
        self.heard_at, self.seen_at = run.max_seq_len, run.max_seq_len + heard
        #: The text's embeddings, by their place, and behind them the soft tokens.
        self.table = iron.state((self.seen_at + seen, config.hidden_size), as_dtype(run.dtype))

    def vector(self, ids: Any, rows: Any, heard: Any = None, seen: Any = None) -> Any:
        """(1, output_size) of the first `rows` of ids. heard, seen: (soft tokens, how many a call has), or None."""
        Copy(self.text.embedded(ids, rows), self.table[: self.run.max_seq_len][:rows])
        for soft, first, last in ((heard, self.heard_at, self.seen_at), (seen, self.seen_at, self.table.shape[0])):
            if soft is not None:
                Copy(soft[0], self.table[first:last][: soft[1]])
        audio = self.config.marks.audio
        places = Merge(ids, audio_token=audio, image_token=self.seen_token, audio_at=self.heard_at, vision_at=self.seen_at)
        x = Copy(self.table[places])[:rows]
        return self.text.vector(self.text.encoded(x, rows), rows)

    def vector_twin(self, weights: Weights, ids: Any, **soft: np.ndarray) -> np.ndarray:
        """float32 (1, output_size). soft: tokens by the field of `Marks` that says what stands for them."""
        text, ids = self.inside(weights, "text"), np.asarray(ids)
        x = self.text.embedding.twin(self.text.inside(text, "embedding"), ids)
        for mark, tokens in soft.items():
            x[ids == getattr(self.config.marks, mark)] = tokens
        x = self.text.encoded_twin(text, x).mean(0, dtype=np.float64).astype(np.float32)[None]
        head = self.text.head
        assert head is not None
        return np.asarray(head.twin(self.text.inside(text, "head"), x))
