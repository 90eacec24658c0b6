"""`SeenText`: a text with an image in it, from ids and pixels to a vector, one graph."""

from __future__ import annotations

from typing import Any

import numpy as np

import iron_core as iron
from iron_embedding_gemma2 import names, vision
from iron_embedding_gemma2.config import TextConfig
from iron_embedding_gemma2.soft_text import SoftText
from iron_embedding_gemma2.vision import image_tower
from iron_lm.blocks.image_patches import ImagePatchesConfig
from iron_lm.checkpoints.sources import Names
from iron_lm.parts.part import Weights
from iron_lm.run import Run


class SeenText(SoftText):
    """ids: (max_seq_len,), of which a call has `rows`; picture: as `ImagePatches` takes it, of whose `height` x `width` pixels
    `down` x `across` patches and `tokens` soft tokens are made -> (1, output_size)."""

    def __init__(self, config: TextConfig, patches: ImagePatchesConfig, run: Run) -> None:
        super().__init__(config, run, seen=patches.room)
        self.seeing = image_tower(config, patches, run)

    def body(
        self,
        ids: Any,
        picture: Any,
        *,
        rows: iron.Scratchpad[np.int32],
        height: iron.Scratchpad[np.int32],
        width: iron.Scratchpad[np.int32],
        down: iron.Scratchpad[np.int32],
        across: iron.Scratchpad[np.int32],
        tokens: iron.Scratchpad[np.int32],
    ) -> Any:
        soft = self.seeing(picture, height=height, width=width, rows=down, columns=across, tokens=tokens)
        return self.vector(ids, rows, seen=(soft, tokens))

    def twin(self, weights: Weights, ids: Any, image: Any) -> np.ndarray:
        """image: uint8 (height, width, 3)."""
        return self.vector_twin(weights, ids, image=self.seeing.twin(self.inside(weights, "seeing"), image))


def named(config: TextConfig) -> Names:
    """What its weights are called."""
    assert config.vision is not None
    text = {f"text.{path}": source for path, source in names.text(config).items()}
    return text | {f"seeing.tower.{path}": source for path, source in vision.names(config.vision).items()}
