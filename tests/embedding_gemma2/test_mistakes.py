"""What Python gives that is no text, no clip, no image and no video: one line at the call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iron_core.errors import IronError, UsageError
from iron_embedding_gemma2 import clips, embedder, images, videos
from tests.embedding_gemma2.weights import clip
from tests.resizes import image_of

IMAGE, SOUND = image_of(24, 40), clip(1600, 3)


@pytest.fixture(scope="module")
def model(pictured: Path) -> embedder.MediaEncoder:
    return embedder.load(pictured, max_seq_len=320, backend="reference")


MISTAKES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a clip of two channels": (lambda m: m.embed_clip(np.stack([SOUND] * 2, 1)), r"float32 \[1600, 2\]; legal: floats \(n,\) from -1 to 1"),
    "a clip of integers": (lambda m: m.embed_clip((SOUND * 32767).astype(np.int16)), r"samples of int16 \[1600\]; legal"),
    "a clip of complex numbers": (lambda m: m.embed_clip(SOUND + 1j), r"samples of complex\d+ \[1600\]; legal"),
    "no clip": (lambda m: m.embed_clip(None), r"samples of object \[\]; legal"),
    "a clip of words": (lambda m: m.embed_clip(["a"] * 200), r"samples of <U1 \[200\]; legal"),
    "a clip of rows of several lengths": (lambda m: m.embed_clip([[1.0, 2.0], [3.0]]), "embed_clip: no samples; legal"),
    "an image without rows": (lambda m: m.embed_image(IMAGE[:0]), "an image of 40 x 0 pixels; legal: 1 x 1 or more"),
    "an image without columns": (lambda m: m.embed_image(IMAGE[:, :0]), "an image of 0 x 24 pixels; legal: 1 x 1 or more"),
    "an image of rows of several lengths": (lambda m: m.embed_image([[1, 2], [3]]), r"no image; legal: uint8 \(height, width, 3\)"),
    "a text that is none": (lambda m: m.embed_image(IMAGE, None), "embed_image: text=None; legal: a text"),
    "ids as a text": (lambda m: m.embed_video([IMAGE], [4, 5]), r"embed_video: text=\[4, 5\]; legal: a text"),
    "a text with an image's mark": (lambda m: m.embed_image(IMAGE, "w500"), "embed_image: id 500 in a text, which stands for a soft token"),
    "a text with a video's mark": (lambda m: m.embed_video([IMAGE], "w501"), "embed_video: id 501 in a text"),
    "a text with a clip's mark": (lambda m: m.embed_mixed(["w502", IMAGE]), "embed_mixed: id 502 in a text"),
    "a mixture that is none": (lambda m: m.embed_mixed(None), "content=None; legal: a sequence of texts, a clip and an image"),
    "a mixture that is a text": (lambda m: m.embed_mixed("w4"), "content='w4'; legal"),
    "a piece of rows of several lengths": (lambda m: m.embed_mixed([[[1], [2, 3]]]), "lists of several lengths; legal: a text, floats"),
    "a video that is none": (lambda m: m.embed_video(None), "frames=None; legal: a sequence of 1 to 32 images"),
    "a video's name": (lambda m: m.embed_video("a.gif"), "frames='a.gif'; legal"),
    "an iterator of frames": (lambda m: m.embed_video(iter([IMAGE])), "legal: a sequence of 1 to 32 images"),
}  # fmt: skip


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_is_one_error_at_the_call(what: str, model: Any) -> None:
    """With what it is, and what would be legal."""
    call, said = MISTAKES[what]
    with pytest.raises(IronError, match=said):
        call(model)


@pytest.mark.parametrize("read", [images.read_image, videos.read_video, clips.read])
@pytest.mark.parametrize(
    ("path", "said"), [("a" * 5000, "a: File name too long|not an image"), ("\x1b[31mred", r"^\\x1b\[31mred: there is no")]
)
def test_a_path_is_told_as_a_terminal_may_show_it(read: Any, path: str, said: str) -> None:
    """Its middle left out where it is long, its controls as escapes."""
    pytest.importorskip("soundfile" if read is clips.read else "PIL.Image", reason="a library of media is not installed")
    with pytest.raises(UsageError, match=said) as told:
        read(path)
    assert len(str(told.value)) < 400 and str(told.value).isprintable()


@pytest.mark.parametrize("read", [images.read_image, videos.read_video, clips.read])
@pytest.mark.parametrize("path", [None, 5, b"a.png", ["a.png"]])
def test_what_is_no_path_is_named(read: Any, path: Any) -> None:
    """With what would be legal."""
    pytest.importorskip("soundfile" if read is clips.read else "PIL.Image", reason="a library of media is not installed")
    with pytest.raises(UsageError, match=r"^read\w*: path=.*; legal: the path of a file\.$"):
        read(path)


def test_no_name_is_no_folder() -> None:
    """Though to the system it is the one that the program stands in."""
    pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    with pytest.raises(UsageError, match="there is no such file"):
        videos.read_video("")
