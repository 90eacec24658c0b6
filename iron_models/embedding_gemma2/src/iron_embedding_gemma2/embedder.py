"""`MediaEncoder` and `load`: EmbeddingGemma 2 from Python, which makes vectors of texts and of clips."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from iron_core import Backend
from iron_core.cache.keys import digest
from iron_core.declare.formats import as_dtype
from iron_core.errors import CheckpointError, UsageError
from iron_embedding_gemma2 import clips, names
from iron_embedding_gemma2.config import TextConfig
from iron_embedding_gemma2.heard_text import HeardText, named
from iron_lm.blocks.log_mel import LogMelConfig
from iron_lm.checkpoints.reading import reading
from iron_lm.embedder import pooling_of, unit
from iron_lm.encoding import EncoderModel
from iron_lm.loading import Loaded
from iron_lm.model import opened
from iron_lm.parts.part import widen

#: What stands before a text, by what it is for.
PROMPTS = {"query": "task: search result | query: ", "document": "title: none | text: "}
#: Soft tokens of a clip that graphs are built for; each is compiled when a clip first needs it. The last are 30 s.
TOKENS = (256, 512, 750)


class MediaEncoder(EncoderModel):
    """As `EncoderModel`; and clips, alone or with a text. `load()` makes it."""

    def __init__(self, loaded: Loaded, **options: Any) -> None:
        """options: of `Graph.compile`."""
        super().__init__(loaded, **options)
        self._options = options
        self._hearing: dict[int, tuple[HeardText, Any]] = {}
        self._audio: dict[str, Any] | None = None

    def embed_clip(self, samples: Any, text: str = "", *, dims: int | None = None) -> np.ndarray:
        """float32 (dims,), of length 1: the vector of a clip, which a text may follow. samples: (n,) at 16000 a second, from 161 to
        480000 of them. UsageError for others, for more tokens than `max_seq_len`, and for a checkpoint without an audio tower."""
        samples = clips.checked(np.asarray(samples, np.float32).reshape(-1, 1), clips.RATE, "embed_clip")
        pooling_of(self.loaded, None, dims)
        config = self._config
        if config.audio is None:
            raise UsageError("embed_clip: this checkpoint has no audio tower (audio_config); legal: texts.")
        frames = LogMelConfig(frames=1).frames_of(len(samples))
        tokens = -(-frames // 4)
        ids = self._around([config.marks.audio_begins, *[config.marks.audio] * tokens, config.marks.audio_ends], text)
        part, compiled = self._compiled_for(next(size for size in TOKENS if size >= tokens))
        row = np.zeros(self.loaded.context, np.int32)
        row[: len(ids)] = ids
        with self._turn:
            found = np.array(compiled(row, part.hearing.features.config.laid(samples), rows=len(ids), count=frames), np.float32)
        if not np.isfinite(found).all():
            raise CheckpointError("the vector is not finite: the weights hold NaN or infinity, or overflow the dtype they run in.")
        return unit(found.reshape(-1), dims)

    @property
    def _config(self) -> TextConfig:
        config = self.loaded.config
        assert isinstance(config, TextConfig)
        return config

    def _around(self, marked: list[int], text: str) -> list[int]:
        """The marks of a clip, then a text, between what every text begins and ends with."""
        if self.tokenizer is None:
            raise UsageError("embed_clip: this checkpoint has no tokenizer; legal: one that has, or load(tokenizer=FILE).")
        inside = self.tokenizer.encode(text)
        first = [] if self.tokenizer.bos is None else [self.tokenizer.bos]
        ids = [*first, *marked, *inside[len(first) :], *self.tokenizer.after]
        if len(ids) > self.loaded.context:
            raise UsageError(f"embed_clip: {len(ids)} tokens with the text; legal: 1 to max_seq_len={self.loaded.context}.")
        return ids

    def _compiled_for(self, tokens: int) -> tuple[HeardText, Any]:
        """The graph for clips of so many soft tokens, and the same compiled."""
        if tokens not in self._hearing:
            run, sound = self.loaded.run, LogMelConfig(frames=4 * tokens)
            part = HeardText(self._config, sound, run)
            heard = self._audio = self._audio or self._audio_weights(part)
            part.fill({f"text.{path}": array for path, array in self.loaded.weights.items()} | heard)
            bounds = [(path, float(array)) for path, array in heard.items() if not array.shape]  # which the graph holds
            key = self.loaded.cache_key
            compiled = part.compile(
                ids=((run.max_seq_len,), np.int32),
                samples=((sound.samples,), np.float32),
                cache_key=None if key is None else digest(key, "heard", tokens, bounds),
                **self._options,
            )
            compiled.load()
            self._hearing[tokens] = part, compiled
        return self._hearing[tokens]

    def _audio_weights(self, part: HeardText) -> dict[str, Any]:
        """Those of the audio tower, by path, in the dtype of the run."""
        checkpoint = self.loaded.checkpoint
        if checkpoint is None:
            raise UsageError("embed_clip: these weights are random, and of the text alone; legal: a checkpoint.")
        shapes = {path: shape for path, shape in part.tensors().items() if path.startswith("hearing.")}
        found = {path: source for path, source in named(self._config).items() if path.startswith("hearing.")}
        with reading(checkpoint.path):
            taken = checkpoint.take(shapes, found, names.BESIDE_AUDIO)
        dtype = as_dtype(self.loaded.run.dtype)
        # Bounds and what is computed of weights keep their own digits.
        return {path: np.asarray(array) if len(array.shape) != 2 else widen(array).astype(dtype) for path, array in taken.items()}


def load(
    path: str | Path,
    *,
    tokenizer: str | Path | None = None,
    dtype: str | None = None,
    max_seq_len: int | None = None,
    backend: str | Backend | None = None,
    dev: str | None = None,
) -> MediaEncoder:
    """Open a checkpoint and compile its encoder; the audio tower is read and compiled when a clip first needs it. As
    `iron_lm.load_encoder` has it."""
    loaded = opened("embedding_gemma2", path, tokenizer=tokenizer, dtype=dtype, max_seq_len=max_seq_len, backend=backend, dev=dev)
    return MediaEncoder(loaded, backend=backend, dev=dev)
