"""`--embed`: vectors of texts."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from iron_core.cli.table import print_json
from iron_core.errors import UsageError
from iron_lm.embedder import Embedder, pooling_of, tokens_of
from iron_lm.encoding import EncoderModel, vectorising
from iron_lm.figures import Figures
from iron_lm.loading import Loaded
from iron_lm.tasks.task import Task


class EmbedTask(Task):
    """Prints the numbers of each text's vector on a line of its own, or one JSON object."""

    of_encoders = True

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        for other in ("prompt", "prompt_len", "profile", "profile_trace"):
            if options[other]:
                raise UsageError(f"--embed gives vectors of its own texts; leave out --{other.replace('_', '-')}.")

    def prepare(self, loaded: Loaded) -> None:
        super().prepare(loaded)
        if loaded.tokenizer is None:
            raise UsageError("--embed needs a tokenizer; give --tokenizer FILE.")
        self.ids = tokens_of(loaded, self.options["embed"], self.options["truncate"])
        self.pooling = pooling_of(loaded, self.options["pooling"], self.options["dims"])

    def compiled(self, **options: Any) -> Embedder | EncoderModel:
        return vectorising(self.loaded, self.pooling, **options)

    def run(self, model: Embedder | EncoderModel, figures: Figures) -> int:
        start = time.perf_counter()
        vectors = model.vectors(self.ids, self.options["dims"])
        figures.prompt_tokens, figures.prompt_s = sum(map(len, self.ids)), time.perf_counter() - start
        figures.sample_memory()
        if self.options["json"]:
            texts = zip(self.options["embed"], self.ids, vectors, strict=True)
            found = [{"text": text, "tokens": len(ids), "embedding": _numbers(each)} for text, ids, each in texts]
            said = {"model": model.family.name, "pooling": self.pooling, "dims": len(vectors[0]), "embeddings": found}
            print_json(said | model.facts() | figures.as_dict(), indent=None)
        else:
            for each in vectors:
                print(*_numbers(each))
        return 0


def _numbers(vector: np.ndarray) -> list[float]:
    """With no more digits than float32 has."""
    return [float(str(number)) for number in vector]
