"""`MediaEncoder` and `load`: EmbeddingGemma 2 from Python, which makes vectors of texts, of clips, of images and of videos."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

import iron_core as iron
from iron_core import Backend
from iron_core.backends.choose import choose
from iron_core.cache.keys import digest
from iron_core.declare.formats import as_dtype
from iron_core.devices import device
from iron_core.errors import UsageError, printable
from iron_embedding_gemma2 import clips, heard_text, mixed_text, names, seen_text
from iron_embedding_gemma2.config import TextConfig
from iron_embedding_gemma2.heard_text import HeardText
from iron_embedding_gemma2.mixed_text import MixedText
from iron_embedding_gemma2.seen_text import SeenText
from iron_embedding_gemma2.shown_text import ShownText
from iron_embedding_gemma2.videos import MOST_FRAMES
from iron_embedding_gemma2.vision import ImageTower, image_tower
from iron_lm.blocks.image_patches import ImagePatchesConfig, checked
from iron_lm.blocks.log_mel import LogMelConfig
from iron_lm.checkpoints.reading import reading
from iron_lm.checkpoints.sources import Names
from iron_lm.embedder import pooling_of, unit
from iron_lm.encoding import EncoderModel
from iron_lm.finite import not_finite
from iron_lm.loading import Loaded
from iron_lm.opening import opened
from iron_lm.parts.part import widen

#: What stands before a text, by what it is for.
PROMPTS = {"query": "task: search result | query: ", "document": "title: none | text: "}
#: Soft tokens of a clip that graphs are built for; each is compiled when a clip first needs it. 30 s are 750.
TOKENS = (256, 512, 768)
#: What an image's means are standardised by, in float32.
_WIDE = ("seeing.tower.bias", "seeing.tower.scale")
#: Soft tokens of an image at most, and the pixels of whose multiples on a side graphs are built for pictures.
BUDGET, PIXELS = 280, 1024
#: Soft tokens of a video's frame at most.
FRAME_BUDGET = 70
#: There is room for a multiple of so many soft tokens, as products on arrays take rows.
ROOM = 64


#: Of a clip and of an image: the part that holds its tower, and the operand that takes it.
_TOWERS, _OPERANDS = {"clip": "hearing", "image": "seeing"}, {"clip": "samples", "image": "picture"}


class _Marks(tuple[int, ...]):
    """Ids of what stands among texts."""


@attrs.frozen(eq=False)
class _Soft:
    """What stands among texts. kind: "clip" or "image"; ids: its marks and what stands for its soft tokens; array, values: as a graph
    takes it, built with room for so many frames or patches."""

    kind: str
    ids: _Marks
    array: np.ndarray
    values: dict[str, int]
    room: Any


class MediaEncoder(EncoderModel):
    """As `EncoderModel`; and clips, images and videos, alone or with a text. `load()` makes it."""

    def __init__(self, loaded: Loaded, **options: Any) -> None:
        """options: of `Graph.compile`."""
        super().__init__(loaded, **options)
        self._options = options
        self._merged: dict[Any, tuple[Any, Any]] = {}
        self._frames: dict[tuple[int, ...], tuple[ImageTower, Any]] = {}
        self._showing: tuple[ShownText, Any] | None = None
        self._towers: dict[str, dict[str, Any]] = {}

    def embed_clip(self, samples: Any, text: str = "", *, dims: int | None = None) -> np.ndarray:
        """float32 (dims,), of length 1: the vector of a clip, which a text may follow. samples: (n,) at 16000 a second, from 161 to
        480000 of them. UsageError for others, for more tokens than `max_seq_len`, and for a checkpoint without an audio tower."""
        return self._among("embed_clip", [self._clip("embed_clip", samples), text], dims)

    def embed_image(self, image: Any, text: str = "", *, dims: int | None = None) -> np.ndarray:
        """float32 (dims,), of length 1: the vector of an image, which a text may follow. image: uint8 (height, width, 3), RGB.
        ParamError for one that is too narrow; UsageError as `embed_clip` has it."""
        return self._among("embed_image", [self._image("embed_image", image), text], dims)

    def embed_mixed(self, content: Sequence[Any], *, dims: int | None = None) -> np.ndarray:
        """float32 (dims,), of length 1: the vector of texts, a clip and an image in the order in which they stand, one graph. content:
        strings; one clip at most, float (n,), as `embed_clip` takes it; one image at most, uint8 (height, width, 3). Errors as there."""
        if not isinstance(content, Sequence) or isinstance(content, str | bytes):
            legal = "legal: a sequence of texts, a clip and an image"
            raise UsageError(f"embed_mixed: content={printable(repr(content), 60)}; {legal}.")
        pieces: list[Any] = []
        for piece in content:
            if isinstance(piece, str):
                pieces.append(piece)
            elif len(np.shape(_numbers("embed_mixed", piece))) == 1:
                pieces.append(self._clip("embed_mixed", piece))
            else:
                pieces.append(self._image("embed_mixed", piece))
        kinds = [piece.kind for piece in pieces if isinstance(piece, _Soft)]
        if len(kinds) != len(set(kinds)) or not kinds:
            has = " and ".join(f"{n} {kind}{'s' * (n > 1)}" for kind, n in sorted(Counter(kinds).items())) or "neither a clip nor an image"
            raise UsageError(f"embed_mixed: {has}; legal: one clip, one image, or one of each, and texts.")
        return self._among("embed_mixed", pieces, dims)

    def embed_video(self, frames: Sequence[Any], text: str = "", *, dims: int | None = None) -> np.ndarray:
        """float32 (dims,), of length 1: the vector of a video, which a text may follow. frames: 1 to 32 images of one size, as
        `embed_image` takes them, a second between each and the next; `videos.read_video` gives those of a file. Errors as there."""
        pooling_of(self.loaded, None, dims)
        marks, patches = self._config.marks, self._patches("embed_video", FRAME_BUDGET)
        if not isinstance(frames, Sequence | np.ndarray) or isinstance(frames, str | bytes):
            raise UsageError(f"embed_video: frames={printable(repr(frames), 60)}; legal: a sequence of 1 to {MOST_FRAMES} images.")
        if not 1 <= len(frames) <= MOST_FRAMES:
            raise UsageError(f"embed_video: {len(frames)} frames; legal: 1 to {MOST_FRAMES}. videos.evenly(frames) takes as many.")
        shapes = [np.shape(checked(frame)) for frame in frames]
        for number, shape in enumerate(shapes, 1):
            if shape != shapes[0]:
                raise UsageError(f"embed_video: frame {number} is {list(shape)}, the first {list(shapes[0])}; legal: all of one size.")
        patches = _fitting(patches, frames[0])
        pictures = [_pictured(patches, frame) for frame in frames]
        tokens = pictures[0][1]["tokens"]
        block = [marks.image_begins, *[marks.video] * tokens, marks.image_ends]
        ids = self._between("embed_video", [_Marks(block * len(frames)), text])
        tower, compiled = self._shows(patches, pictures[0][0])
        with self._turn:
            made = [np.array(tower(picture, **values)) for picture, values in pictures]
        soft = np.zeros((self.loaded.run.max_seq_len, self._config.hidden_size), made[0].dtype)
        soft[: tokens * len(frames)] = np.concatenate(made)
        return self._called(compiled, ids, [soft], dims, tokens=tokens * len(frames))

    def _clip(self, where: str, samples: Any) -> _Soft:
        """Checked, and what stands for it. UsageError."""
        samples, marks = clips.of_python(samples, where), self._config.marks
        if self._config.audio is None:
            raise UsageError(f"{where}: this checkpoint has no audio tower (audio_config); legal: texts.")
        frames = LogMelConfig(frames=1).frames_of(len(samples))
        tokens = -(-frames // 4)
        room = LogMelConfig(frames=4 * next(size for size in TOKENS if size >= tokens))
        ids = _Marks([marks.audio_begins, *[marks.audio] * tokens, marks.audio_ends])
        return _Soft("clip", ids, room.laid(samples), dict(count=frames, heard=tokens), room)

    def _image(self, where: str, image: Any) -> _Soft:
        """As `_clip`."""
        marks, patches = self._config.marks, _fitting(self._patches(where, BUDGET), image)
        picture, values = _pictured(patches, image)
        values = {{"rows": "down", "columns": "across"}.get(name, name): number for name, number in values.items()}
        ids = _Marks([marks.image_begins, *[marks.image] * values["tokens"], marks.image_ends])
        return _Soft("image", ids, picture, values, patches)

    def _among(self, where: str, content: Sequence[str | _Soft], dims: int | None) -> np.ndarray:
        """The vector of texts among which clips and images stand."""
        pooling_of(self.loaded, None, dims)
        ids = self._between(where, [piece.ids if isinstance(piece, _Soft) else piece for piece in content])
        soft = sorted((piece for piece in content if isinstance(piece, _Soft)), key=lambda one: one.kind)  # clips are taken first
        values = {name: number for one in soft for name, number in one.values.items()}
        return self._called(self._merging(soft), ids, [one.array for one in soft], dims, **values)

    def _patches(self, where: str, budget: int) -> ImagePatchesConfig:
        """How an image is cut. UsageError for a checkpoint without a vision tower."""
        vision = self._config.vision
        if vision is None:
            raise UsageError(f"{where}: this checkpoint has no vision tower (vision_config); legal: texts.")
        return ImagePatchesConfig(budget=budget, room=-(-budget // ROOM) * ROOM, pool=vision.pool, positions=vision.positions + 1)

    def _called(self, compiled: Any, ids: list[int], given: Sequence[np.ndarray], dims: int | None, **values: int) -> np.ndarray:
        row = np.zeros(self.loaded.context, np.int32)
        row[: len(ids)] = ids
        with self._turn:
            found = np.array(compiled(row, *given, rows=len(ids), **values), np.float32).reshape(-1)
        if not np.isfinite(found).all():
            raise not_finite("the vector is")
        return unit(found, dims)

    @property
    def graphs(self) -> tuple[Any, ...]:
        """What is compiled by now: of texts, and of texts with clips and images."""
        return (self.compiled, *(compiled for _, compiled in self._merged.values()))

    @property
    def _config(self) -> TextConfig:
        config = self.loaded.config
        assert isinstance(config, TextConfig)
        return config

    def _between(self, where: str, content: Sequence[str | _Marks]) -> list[int]:
        """Texts and the marks of what stands among them, between what every text begins and ends with."""
        if self.tokenizer is None:
            raise UsageError(f"{where}: this checkpoint has no tokenizer; legal: one that has, or load(tokenizer=FILE).")
        first = [] if self.tokenizer.bos is None else [self.tokenizer.bos]
        marks = self._config.marks
        ids = [*first]
        for piece in content:
            if isinstance(piece, _Marks):
                ids += piece
                continue
            if not isinstance(piece, str):
                raise UsageError(f"{where}: text={printable(repr(piece), 60)}; legal: a text.")
            text = self.tokenizer.encode(piece)[len(first) :]
            if taken := {marks.image, marks.audio, marks.video}.intersection(text):  # it would take a soft token from its place
                id = min(taken)
                raise UsageError(f"{where}: id {id} in a text, which stands for a soft token; legal: a text without such a mark.")
            ids += text
        ids += self.tokenizer.after
        if len(ids) > self.loaded.context:
            raise UsageError(f"{where}: {len(ids)} tokens with the text; legal: 1 to max_seq_len={self.loaded.context}.")
        return ids

    def _merging(self, soft: Sequence[_Soft]) -> Any:
        """Compiled: the graph of a text with a clip, an image, or both."""
        kinds = tuple(one.kind for one in soft)
        sizes = tuple(one.room.frames if one.kind == "clip" else _size(one.room, one.array) for one in soft)
        if (kinds, sizes) not in self._merged:
            config, run, rooms = self._config, self.loaded.run, [one.room for one in soft]
            make, module = {
                ("clip",): (HeardText, heard_text), ("image",): (SeenText, seen_text), ("clip", "image"): (MixedText, mixed_text)
            }[kinds]  # fmt: skip
            part, named = make(config, *rooms, run), module.named(config)
            own: dict[str, Any] = {}
            for kind in kinds:
                own |= self._weights(_TOWERS[kind], part, named)
            part.fill({f"text.{path}": array for path, array in self.loaded.weights.items()} | own)
            shapes = {_OPERANDS[one.kind]: (one.array.shape, one.array.dtype) for one in soft}
            self._merged[kinds, sizes] = part, self._ready(part, kinds, sizes, own, ids=((run.max_seq_len,), np.int32), **shapes)
        return self._merged[kinds, sizes][1]

    def _shows(self, patches: ImagePatchesConfig, picture: np.ndarray) -> tuple[Any, Any]:
        """Compiled: the tower for frames of a picture's size, and the graph of a text with a video."""
        config, run, size = self._config, self.loaded.run, _size(patches, picture)
        if size not in self._frames:
            own = self._weights("seeing", SeenText(config, patches, run), seen_text.named(config))
            tower = image_tower(config, patches, run)
            tower.fill({path.removeprefix("seeing."): array for path, array in own.items()})
            self._frames[size] = tower, self._ready(tower, "frame", size, own, picture=(picture.shape, np.uint8))
        if self._showing is None:
            part = ShownText(config, run)
            part.fill({f"text.{path}": array for path, array in self.loaded.weights.items()})
            soft = ((run.max_seq_len, config.hidden_size), as_dtype(run.dtype))
            self._showing = part, self._ready(part, "showing", (), {}, ids=((run.max_seq_len,), np.int32), soft=soft)
        return self._frames[size][1], self._showing[1]

    def _ready(self, part: Any, what: Any, sizes: tuple[Any, ...], own: dict[str, Any], **shapes: Any) -> Any:
        """A filled part, compiled and loaded. own: weights of a tower, whose bounds the graph holds."""
        bounds = [(path, float(array)) for path, array in own.items() if not array.shape]
        key = self.loaded.cache_key
        options = dict(self._options)
        if isinstance(part, MixedText) and device(choose(options.get("backend"), options.get("dev")).dev).is_npu:
            options["boundaries"] = iron.each_step  # it has more per-call words than a full ELF holds
        compiled = part.compile(**shapes, cache_key=None if key is None else digest(key, what, sizes, bounds), **options)
        compiled.load()
        return compiled

    def _weights(self, tower: str, part: Any, named: Names) -> dict[str, Any]:
        """Those of a tower, read once. part: one that has it."""
        if tower not in self._towers:
            self._towers[tower] = self._weights_of(part, tower, named)
        return self._towers[tower]

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
        kept = {path for path, a in taken.items() if not a.shape or (tower == "hearing" and len(a.shape) != 2) or path in _WIDE}
        return {path: np.asarray(array) if path in kept else widen(array).astype(dtype) for path, array in taken.items()}


def _fitting(patches: ImagePatchesConfig, image: Any) -> ImagePatchesConfig:
    """Of an image's shape. ShapeError for what is no image; one without pixels is refused where it is laid out."""
    height, width, _ = checked(image).shape
    return patches.fitting(height, width) if height and width else patches


def _numbers(where: str, piece: Any) -> np.ndarray:
    """A piece that is no text. UsageError for lists of several lengths."""
    try:
        return np.asarray(piece)
    except ValueError:
        legal = "legal: a text, floats (n,), uint8 (height, width, 3)"
        raise UsageError(f"{where}: lists of several lengths; {legal}.") from None


def _size(patches: ImagePatchesConfig, picture: np.ndarray) -> tuple[int, ...]:
    """What a tower is built for: rows and bytes of a picture, rows and columns of patches."""
    return (*picture.shape, patches.rows, patches.columns)


def _pictured(patches: ImagePatchesConfig, image: Any) -> tuple[np.ndarray, dict[str, int]]:
    """An image in a picture of whole `PIXELS` on a side; the per-call values of the tower."""
    picture = patches.laid(image)
    height, width = np.shape(image)[:2]
    most = patches.laid(np.zeros((-(-height // PIXELS) * PIXELS, -(-width // PIXELS) * PIXELS, 3), np.uint8))
    most[:height, : picture.shape[1]] = picture
    return most, patches.sizes(height, width) | {"tokens": patches.tokens(height, width)}


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
