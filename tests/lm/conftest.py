"""The tiny Llama that transformers made: llama3 scaling, 4 query heads a KV head, an untied head."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iron_llama.layout import layout
from iron_llama.model import Llama
from iron_lm.checkpoint import Checkpoint
from iron_lm.config import Config, from_huggingface

TINY = Path(__file__).parents[1] / "data" / "tiny_llama"


class Tiny:
    """Weights, ids and the logits transformers gave after each id."""

    def __init__(self) -> None:
        self.checkpoint = Checkpoint.open(TINY)
        stored = np.load(TINY / "outputs.npz")
        self.ids = [int(i) for i in stored["ids"]]
        self.logits = stored["logits"]

    def config(self, **changes: Any) -> Config:
        fixed = dict(max_seq_len=128, prefill_chunk=32, dtype="float32", cache_dtype="float32")
        return Config(**{**from_huggingface(self.checkpoint.metadata["config"]), **fixed, **changes})

    def model(self, **changes: Any) -> Llama:
        config = self.config(**changes)
        return Llama(config, self.checkpoint.tree(layout("safetensors", config.tied), config))


@pytest.fixture(scope="session")
def tiny() -> Tiny:
    return Tiny()
