"""Images and videos of a checkpoint in a folder, from their pixels to a vector."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import iron_core as iron
from iron_core.errors import ShapeError, UsageError
from iron_embedding_gemma2 import embedder
from iron_embedding_gemma2.mixed_text import MixedText
from tests.embedding_gemma2.conftest import unit, written
from tests.embedding_gemma2.weights import PICTURED, clip, frames
from tests.resizes import image_of


@pytest.fixture(scope="module")
def model(pictured: Path, backend: str) -> embedder.MediaEncoder:
    return embedder.load(pictured, max_seq_len=320, backend=backend)


def test_an_image_is_what_transformers_says(model: Any, golden: Any) -> None:
    """Its marks and soft tokens between <bos> and <eos>: of the pixels that torchvision's resize makes, within 1e-4."""
    assert np.abs(model.embed_image(frames()[0]) - unit(golden["image_vector"])).max() < 1e-4


def test_a_video_is_what_transformers_says(model: Any, golden: Any) -> None:
    """Three frames of up to 70 tokens, each between its own marks: within 1e-4."""
    assert np.abs(model.embed_video(frames()) - unit(golden["video_vector"])).max() < 1e-4


def test_a_text_stands_behind(model: Any) -> None:
    """An image with a text is the numpy forward of both."""
    image = image_of(31, 64)
    got = model.embed_image(image, "w7")
    ((part, _),) = model._merged.values()
    weights = {f"text.{path}": array for path, array in model.loaded.exact.items()} | model._towers["seeing"]
    tokens = part.seeing.patches.config.tokens(31, 64)
    want = part.twin(weights, [2, 503, *[500] * tokens, 504, 7, 1], image)[0]
    assert 200 < tokens <= 280 and np.abs(got - unit(want)).max() < 1e-4


def test_an_image_of_1_x_10000_is_280_tokens(golden: Any, tmp_path: Path) -> None:
    """As transformers has it, lying and standing: the numpy forward, of a model whose tables have as many places."""
    model = embedder.load(written(tmp_path, golden, **PICTURED | {"position_embedding_size": 1024}), max_seq_len=320, backend="host")
    model.embed_image(image_of(31, 64))
    for image in (image_of(1, 10000), image_of(10000, 1)):
        got = model.embed_image(image)
        part = list(model._merged.values())[-1][0]
        weights = {f"text.{path}": array for path, array in model.loaded.exact.items()} | model._towers["seeing"]
        want = part.twin(weights, [2, 503, *[500] * 280, 504, 1], image)[0]
        assert np.abs(got - unit(want)).max() < 1e-4
    assert len(model._merged) == 3


def test_texts_a_clip_and_an_image_are_one_graph(model: Any) -> None:
    """In the order of the content: the numpy forward of all, from samples and pixels."""
    image, samples = image_of(31, 64), clip(1600, 2)
    got = model.embed_mixed(["w7", image, "w8 w9", samples, "w10"])
    part = next(part for part, _ in model._merged.values() if isinstance(part, MixedText))
    weights = {f"text.{path}": array for path, array in model.loaded.exact.items()} | model._towers["hearing"] | model._towers["seeing"]
    sound, marks = part.hearing.features.config, model.loaded.config.marks
    seen, heard = part.seeing.patches.config.tokens(31, 64), -(-sound.frames_of(1600) // 4)
    pictured = [marks.image_begins, *[marks.image] * seen, marks.image_ends]
    ids = [2, 7, *pictured, 8, 9, marks.audio_begins, *[marks.audio] * heard, marks.audio_ends, 10, 1]
    want = part.twin(weights, ids, sound.laid(samples), sound.frames_of(1600), image)[0]
    assert np.abs(got - unit(want)).max() < 1e-4


class _Compiled(Exception):
    pass


@pytest.mark.parametrize(("on", "stepwise"), [(dict(backend="sim", dev="npu2"), True), (dict(backend="host"), False)])
def test_on_arrays_a_text_with_both_towers_is_a_dispatch_each_step(
    on: dict[str, str], stepwise: bool, pictured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full ELF has no room for its per-call words; elsewhere the graph is one."""

    def compiled(part: Any, **options: Any) -> None:
        raise _Compiled(options)

    model = embedder.load(pictured, max_seq_len=320, backend="host")
    monkeypatch.setattr(model, "_options", on)
    monkeypatch.setattr(MixedText, "compile", compiled)
    with pytest.raises(_Compiled) as told:
        model.embed_mixed([image_of(31, 64), clip(1600, 2)])
    assert (told.value.args[0].get("boundaries") is iron.each_step) == stepwise


def test_a_second_of_a_kind_is_refused(model: Any) -> None:
    """A graph has room for one clip and one image."""
    image, samples = image_of(31, 64), clip(400, 0)
    wrong = {"2 images": [image, "w7", image], "2 clips and 1 image": [samples, image, samples], "neither a clip nor an image": ["w7"]}
    for has, content in wrong.items():
        with pytest.raises(UsageError, match=rf"embed_mixed: {has}; legal: one clip, one image, or one of each, and texts"):
            model.embed_mixed(content)


def test_videos_of_any_length_share_their_graphs(model: Any) -> None:
    """Of one frame and of two, with a text: within 1e-4 of the numpy forward of what the tower gives, and nothing is compiled again."""
    model.embed_video(frames())
    ((tower, _),) = model._frames.values()
    part, compiled = model._showing
    weights = {f"text.{path}": array for path, array in model.loaded.exact.items()}
    seen = {path.removeprefix("seeing."): array for path, array in model._towers["seeing"].items()}
    for n in (1, 2):
        got = model.embed_video(frames()[:n], "w7 w8", dims=16)
        soft = np.concatenate([tower.twin(seen, frame) for frame in frames()[:n]])
        ids = [2, *[503, *[501] * (len(soft) // n), 504] * n, 7, 8, 1]
        assert np.abs(got - unit(part.twin(weights, ids, soft)[0][:16])).max() < 1e-4
    assert len(model._frames) == 1 and model._showing[1] is compiled


def test_what_cannot_be_seen_is_refused(model: Any, folder: Path, golden: Any, tmp_path: Path) -> None:
    """By what would be legal: too many tokens, no frame, too many, of several sizes, none of pixels."""
    with pytest.raises(UsageError, match=r"embed_image: 3[0-9]+ tokens with the text; legal: 1 to max_seq_len=320"):
        model.embed_image(image_of(40, 60), "w7 " * 70)
    with pytest.raises(UsageError, match=r"embed_video: 3[0-9]+ tokens with the text; legal: 1 to max_seq_len=320"):
        model.embed_video(frames() * 2)
    for n in (0, 33):
        with pytest.raises(UsageError, match=rf"embed_video: {n} frames; legal: 1 to 32"):
            model.embed_video(frames()[:1] * n)
    with pytest.raises(UsageError, match=r"frame 2 is \[8, 9, 3\], the first \[40, 60, 3\]; legal: all of one size"):
        model.embed_video([frames()[0], image_of(8, 9)])
    with pytest.raises(ShapeError, match=r"an image of float64 \[4, 4\]; legal: uint8 \(height, width, 3\)"):
        model.embed_image(np.zeros((4, 4)))
