"""`MediaEncoder` and `load`: EmbeddingGemma 2 from Python, which makes vectors of texts, of clips and of images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from iron_core import Backend
from iron_core.cache.keys import digest
from iron_core.declare.formats import as_dtype
from iron_core.errors import CheckpointError, UsageError
from iron_embedding_gemma2 import clips, heard_text, names, seen_text
from iron_embedding_gemma2.config import TextConfig
from iron_embedding_gemma2.heard_text import HeardText
from iron_embedding_gemma2.seen_text import SeenText
from iron_lm.blocks.image_patches import ImagePatchesConfig
from iron_lm.blocks.log_mel import LogMelConfig
from iron_lm.checkpoints.reading import reading
from iron_lm.checkpoints.sources import Names
from iron_lm.embedder import pooling_of, unit
from iron_lm.encoding import EncoderModel
from iron_lm.loading import Loaded
from iron_lm.model import opened
from iron_lm.parts.part import widen

#: What stands before a text, by what it is for.
PROMPTS = {"query": "task: search result | query: ", "document": "title: none | text: "}
#: Soft tokens of a clip that graphs are built for; each is compiled when a clip first needs it. The last are 30 s.
TOKENS = (256, 512, 750)
#: Soft tokens of an image at most, and the pixels of whose multiples on a side graphs are built for pictures.
BUDGET, PIXELS = 280, 1024


class MediaEncoder(EncoderModel):
    """As `EncoderModel`; and clips, and images, alone or with a text. `load()` makes it."""

    def __init__(self, loaded: Loaded, **options: Any) -> None:
        """options: of `Graph.compile`."""
        super().__init__(loaded, **options)
        self._options = options
        self._hearing: dict[int, tuple[HeardText, Any]] = {}
        self._seeing: dict[tuple[int, int], tuple[SeenText, Any]] = {}
        self._towers: dict[str, dict[str, Any]] = {}

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
        ids = self._around("embed_clip", [config.marks.audio_begins, *[config.marks.audio] * tokens, config.marks.audio_ends], text)
        part, compiled = self._hears(next(size for size in TOKENS if size >= tokens))
        return self._called(compiled, ids, part.hearing.features.config.laid(samples), dims, count=frames)

    def embed_image(self, image: Any, text: str = "", *, dims: int | None = None) -> np.ndarray:
        """float32 (dims,), of length 1: the vector of an image, which a text may follow. image: uint8 (height, width, 3), RGB.
        ParamError for one that is too narrow; UsageError as `embed_clip` has it."""
        pooling_of(self.loaded, None, dims)
        config = self._config
        if config.vision is None:
            raise UsageError("embed_image: this checkpoint has no vision tower (vision_config); legal: texts.")
        patches = ImagePatchesConfig(budget=BUDGET, pool=config.vision.pool, positions=config.vision.positions + 1)
        picture, (height, width) = patches.laid(image), image.shape[:2]
        tokens, (down, across) = patches.tokens(height, width), patches.grid(height, width)
        ids = self._around("embed_image", [config.marks.image_begins, *[config.marks.image] * tokens, config.marks.image_ends], text)
        most = patches.laid(np.zeros((-(-height // PIXELS) * PIXELS, -(-width // PIXELS) * PIXELS, 3), np.uint8))
        most[:height, : picture.shape[1]] = picture
        _, compiled = self._sees(patches, most.shape)
        return self._called(compiled, ids, most, dims, height=height, width=width, down=down, across=across, tokens=tokens)

    def _called(self, compiled: Any, ids: list[int], given: np.ndarray, dims: int | None, **values: int) -> np.ndarray:
        row = np.zeros(self.loaded.context, np.int32)
        row[: len(ids)] = ids
        with self._turn:
            found = np.array(compiled(row, given, rows=len(ids), **values), np.float32).reshape(-1)
        if not np.isfinite(found).all():
            raise CheckpointError("the vector is not finite: the weights hold NaN or infinity, or overflow the dtype they run in.")
        return unit(found, dims)

    @property
    def _config(self) -> TextConfig:
        config = self.loaded.config
        assert isinstance(config, TextConfig)
        return config

    def _around(self, where: str, marked: list[int], text: str) -> list[int]:
        """The marks of a clip or an image, then a text, between what every text begins and ends with."""
        if self.tokenizer is None:
            raise UsageError(f"{where}: this checkpoint has no tokenizer; legal: one that has, or load(tokenizer=FILE).")
        inside = self.tokenizer.encode(text)
        first = [] if self.tokenizer.bos is None else [self.tokenizer.bos]
        ids = [*first, *marked, *inside[len(first) :], *self.tokenizer.after]
        if len(ids) > self.loaded.context:
            raise UsageError(f"{where}: {len(ids)} tokens with the text; legal: 1 to max_seq_len={self.loaded.context}.")
        return ids

    def _hears(self, tokens: int) -> tuple[HeardText, Any]:
        """The graph for clips of so many soft tokens, and the same compiled."""
        if tokens not in self._hearing:
            sound = LogMelConfig(frames=4 * tokens)
            part = HeardText(self._config, sound, self.loaded.run)
            shapes = {"samples": ((sound.samples,), np.float32)}
            self._hearing[tokens] = part, self._compiled(part, "hearing", heard_text.named(self._config), shapes, tokens)
        return self._hearing[tokens]

    def _sees(self, patches: ImagePatchesConfig, size: tuple[int, int]) -> tuple[SeenText, Any]:
        """The graph for pictures of so many rows and bytes of a row, and the same compiled."""
        if size not in self._seeing:
            part = SeenText(self._config, patches, self.loaded.run)
            shapes = {"picture": (size, np.uint8)}
            self._seeing[size] = part, self._compiled(part, "seeing", seen_text.named(self._config), shapes, *size)
        return self._seeing[size]

    def _compiled(self, part: Any, tower: str, named: Names, shapes: dict[str, Any], *sizes: int) -> Any:
        """The part, filled, compiled and loaded. sizes: that tell it from others of the same tower."""
        if tower not in self._towers:
            self._towers[tower] = self._weights_of(part, tower, named)
        own = self._towers[tower]
        part.fill({f"text.{path}": array for path, array in self.loaded.weights.items()} | own)
        bounds = [(path, float(array)) for path, array in own.items() if not array.shape]  # which the graph holds
        key = self.loaded.cache_key
        compiled = part.compile(
            ids=((self.loaded.run.max_seq_len,), np.int32),
            **shapes,
            cache_key=None if key is None else digest(key, tower, sizes, bounds),
            **self._options,
        )
        compiled.load()
        return compiled

    def _weights_of(self, part: Any, tower: str, named: Names) -> dict[str, Any]:
        """Those of a tower, by path, in the dtype of the run."""
        checkpoint = self.loaded.checkpoint
        if checkpoint is None:
            raise UsageError("these weights are random, and of the text alone; legal: a checkpoint.")
        shapes = {path: shape for path, shape in part.tensors().items() if path.startswith(f"{tower}.")}
        found = {path: source for path, source in named.items() if path.startswith(f"{tower}.")}
        with reading(checkpoint.path):
            taken = checkpoint.take(shapes, found, names.BESIDE[tower])
        dtype = as_dtype(self.loaded.run.dtype)
        # Bounds, and what is computed of weights or added to rows as it is stored, keep their own digits.
        kept = {path: array for path, array in taken.items() if tower == "hearing" and len(array.shape) != 2}
        return {path: np.asarray(array) if path in kept else widen(array).astype(dtype) for path, array in taken.items()}


def load(
    path: str | Path,
    *,
    tokenizer: str | Path | None = None,
    dtype: str | None = None,
    max_seq_len: int | None = None,
    backend: str | Backend | None = None,
    dev: str | None = None,
) -> MediaEncoder:
    """Open a checkpoint and compile its encoder; its towers are read and compiled when a clip or an image first needs them. As
    `iron_lm.load_encoder` has it."""
    loaded = opened("embedding_gemma2", path, tokenizer=tokenizer, dtype=dtype, max_seq_len=max_seq_len, backend=backend, dev=dev)
    return MediaEncoder(loaded, backend=backend, dev=dev)
