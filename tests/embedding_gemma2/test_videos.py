"""Videos as files and folders have them: the frames that stand for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iron_core.errors import UsageError
from iron_embedding_gemma2 import videos
from iron_embedding_gemma2.videos import at_seconds, evenly


@pytest.fixture
def pillow() -> Any:
    return pytest.importorskip("PIL.Image", reason="Pillow is not installed")


def grey(level: int, size: tuple[int, int] = (6, 8)) -> np.ndarray:
    return np.full((*size, 3), level, np.uint8)


def test_of_a_moving_image_each_whole_second_is_a_frame(pillow: Any, tmp_path: Path) -> None:
    """Of frames that last 500 ms every second one, the first at 0; in each format that moves."""
    images = [pillow.fromarray(grey(10 * i)) for i in range(7)]
    for name, more in (("a.gif", {}), ("a.png", {}), ("a.webp", {"lossless": True})):
        images[0].save(tmp_path / name, save_all=True, append_images=images[1:], duration=500, loop=0, **more)
        assert [int(frame[0, 0, 0]) for frame in videos.read_video(tmp_path / name)] == [0, 20, 40], name


@pytest.mark.parametrize(("lengths", "shown"), [
    ([1000] * 4, [0, 1, 2, 3]),
    ([40] * 100, [0, 25, 50, 75]),
    ([400, 400], [0]),
    ([2500, 100, 600], [0, 0, 0]),
    ([0, 0, 0], [0, 1, 2]),
    ([0, 1000, 0, 1000], [1, 3]),
])  # fmt: skip
def test_a_second_shows_the_frame_that_lasts_then(lengths: list[int], shown: list[int]) -> None:
    """As transformers' video processor takes one frame a second; without lengths all are taken."""
    assert at_seconds(lengths) == shown


def test_of_many_frames_32_lie_evenly() -> None:
    """As numpy.linspace has them, the first and the last among them; of 32 all."""
    assert evenly(range(32)) == [*range(32)]
    assert evenly(range(100)) == np.linspace(0, 99, 32, dtype=int).tolist()


def test_a_folder_is_its_images_in_the_order_of_their_numbers(pillow: Any, tmp_path: Path) -> None:
    """9 before 10; hidden files are none."""
    for i in (10, 9, 100):
        pillow.fromarray(grey(i)).save(tmp_path / f"frame{i}.png")
    (tmp_path / ".DS_Store").write_bytes(b"x")
    assert [int(frame[0, 0, 0]) for frame in videos.read_video(tmp_path)] == [9, 10, 100]


def test_one_image_is_a_video_of_one_frame(pillow: Any, tmp_path: Path) -> None:
    pillow.fromarray(grey(7)).save(tmp_path / "a.png")
    (frame,) = videos.read_video(tmp_path / "a.png")
    assert np.array_equal(frame, grey(7))


def test_what_is_no_video_is_one_line(pillow: Any, tmp_path: Path) -> None:
    """With what makes frames of a file that Pillow does not read."""
    (tmp_path / "a.mp4").write_bytes(b"....ftypisom")
    (tmp_path / "empty").mkdir()
    for name, said in (("a.mp4", "ffmpeg -i FILE"), ("none.gif", "no such file"), ("empty", "a folder without files")):
        with pytest.raises(UsageError, match=said) as told:
            videos.read_video(tmp_path / name)
        assert "\n" not in str(told.value) and name in str(told.value)
