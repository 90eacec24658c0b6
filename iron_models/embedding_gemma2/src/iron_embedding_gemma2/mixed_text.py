"""`MixedText`: a text with a clip and an image in it, from ids, samples and pixels to a vector, one graph."""

from __future__ import annotations

from typing import Any

import numpy as np

import iron_core as iron
from iron_embedding_gemma2 import heard_text, seen_text
from iron_embedding_gemma2.audio import Hearing
from iron_embedding_gemma2.config import TextConfig
from iron_embedding_gemma2.soft_text import SoftText
from iron_embedding_gemma2.vision import image_tower
from iron_lm.blocks.image_patches import ImagePatchesConfig
from iron_lm.blocks.log_mel import LogMelConfig
from iron_lm.checkpoints.sources import Names
from iron_lm.parts.part import Weights
from iron_lm.run import Run


class MixedText(SoftText):
    """ids, and `rows`; samples, `count` and `heard` as `HeardText` takes them; picture and all its values as `SeenText` does
    -> (1, output_size). The clip and the image stand where their ids do, in either order."""

    def __init__(self, config: TextConfig, sound: LogMelConfig, patches: ImagePatchesConfig, run: Run) -> None:
        assert config.audio is not None
        hearing = Hearing(config.audio, sound, config.hidden_size, run)
        super().__init__(config, run, heard=hearing.tower.tokens, seen=patches.room)
        self.hearing, self.seeing = hearing, image_tower(config, patches, run)

    def body(
        self,
        ids: Any,
        samples: Any,
        picture: Any,
        *,
        rows: iron.Scratchpad[np.int32],
        count: iron.Scratchpad[np.int32],
        heard: iron.Scratchpad[np.int32],
        height: iron.Scratchpad[np.int32],
        width: iron.Scratchpad[np.int32],
        down: iron.Scratchpad[np.int32],
        across: iron.Scratchpad[np.int32],
        tokens: iron.Scratchpad[np.int32],
    ) -> Any:
        clip = self.hearing(samples, count=count, tokens=heard)
        image = self.seeing(picture, height=height, width=width, rows=down, columns=across, tokens=tokens)
        return self.vector(ids, rows, heard=(clip, heard), seen=(image, tokens))

    def twin(self, weights: Weights, ids: Any, samples: Any, count: int, image: Any) -> np.ndarray:
        """image: uint8 (height, width, 3)."""
        heard = self.hearing.twin(self.inside(weights, "hearing"), samples, count)
        return self.vector_twin(weights, ids, audio=heard, image=self.seeing.twin(self.inside(weights, "seeing"), image))


def named(config: TextConfig) -> Names:
    """What its weights are called."""
    return {**heard_text.named(config), **seen_text.named(config)}
