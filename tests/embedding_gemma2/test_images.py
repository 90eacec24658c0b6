"""Images as files have them: turned, see-through, grey, of a palette, and broken."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iron_core.errors import UsageError
from iron_embedding_gemma2.images import read_image
from iron_lm.blocks.image_patches import ImagePatchesConfig
from tests.resizes import image_of

RNG = np.random.default_rng(0)


@pytest.fixture
def pillow() -> Any:
    return pytest.importorskip("PIL.Image", reason="Pillow is not installed")


def test_an_image_is_its_pixels(pillow: Any, tmp_path: Path) -> None:
    """RGB as it is; of any size down to one pixel, and up to 1 x 10000."""
    for size in ((7, 5), (1, 1), (1, 10000), (300, 2)):
        want = image_of(*size)
        pillow.fromarray(want).save(tmp_path / "a.png")
        got = read_image(tmp_path / "a.png")
        assert got.dtype == np.uint8 and np.array_equal(got, want)


@pytest.mark.parametrize("turn", range(1, 9))
def test_an_image_is_turned_as_its_exif_says(pillow: Any, tmp_path: Path, turn: int) -> None:
    """All eight ways, by hand."""
    stored = image_of(4, 6)
    turns = {
        1: lambda a: a, 2: lambda a: a[:, ::-1], 3: lambda a: a[::-1, ::-1], 4: lambda a: a[::-1], 5: lambda a: a.swapaxes(0, 1),
        6: lambda a: np.rot90(a, -1), 7: lambda a: a[::-1, ::-1].swapaxes(0, 1), 8: lambda a: np.rot90(a),
    }  # fmt: skip
    exif = pillow.Exif()
    exif[0x0112] = turn
    pillow.fromarray(stored).save(tmp_path / "a.png", exif=exif)
    assert np.array_equal(read_image(tmp_path / "a.png"), turns[turn](stored))


@pytest.mark.parametrize("mode", ["L", "1", "P", "RGBA", "LA", "CMYK", "I;16"])
def test_an_image_of_any_mode_becomes_rgb(pillow: Any, tmp_path: Path, mode: str) -> None:
    """Grey three times; colours of a palette; what is see-through as its own colour; 16 bits of grey as their upper 8."""
    rgb = image_of(6, 8)
    if mode == "I;16":
        grey = RNG.integers(0, 65536, (6, 8)).astype(np.uint16)
        image, want = pillow.fromarray(grey), np.repeat((grey >> 8).astype(np.uint8)[..., None], 3, 2)
    elif mode == "RGBA":
        image = pillow.fromarray(np.concatenate([rgb, RNG.integers(0, 256, (6, 8, 1)).astype(np.uint8)], -1))
        want = rgb
    else:
        image = pillow.fromarray(rgb).convert(mode)
        want = np.asarray(image.convert("RGB"))
    path = tmp_path / ("a.tiff" if mode == "CMYK" else "a.png")
    image.save(path)
    got = read_image(path)
    assert got.shape == (6, 8, 3) and np.array_equal(got, want)
    if mode in ("L", "1", "LA", "I;16"):
        assert (got[..., :1] == got).all()


def test_of_several_frames_the_first_is_read(pillow: Any, tmp_path: Path) -> None:
    """A GIF that moves."""
    frames = [pillow.fromarray(np.full((5, 5, 3), level, np.uint8)) for level in (10, 200)]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert (read_image(tmp_path / "a.gif") == 10).all()


def test_an_image_that_is_none_is_one_line(pillow: Any, tmp_path: Path) -> None:
    """Its path, and what Pillow says."""
    (tmp_path / "a.png").write_bytes(b"no image")
    pillow.fromarray(image_of(40, 40)).save(tmp_path / "b.png")
    whole = (tmp_path / "b.png").read_bytes()
    (tmp_path / "b.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "c.png").write_bytes(b"")
    pillow.fromarray(np.ones((3, 3), np.float32)).save(tmp_path / "d.tiff")
    pillow.fromarray(np.full((3, 3), 1 << 20, np.int32)).save(tmp_path / "e.tiff")
    for name in ("a.png", "b.png", "c.png", "d.tiff", "e.tiff", "", "none.png"):
        with pytest.raises(UsageError, match=r"^[^\n]*$") as said:
            read_image(tmp_path / name)
        assert str(tmp_path / name) in str(said.value)


def test_a_narrow_image_is_refused_by_the_towers_size(pillow: Any, tmp_path: Path) -> None:
    """One of 10000 x 1 pixels, by what it would become."""
    pillow.fromarray(image_of(1, 10000)).save(tmp_path / "a.png")
    height, width, _ = read_image(tmp_path / "a.png").shape
    with pytest.raises(ValueError, match="10000 x 1 pixels becomes 840 x 3 patches; legal: columns=96 x rows=96"):
        ImagePatchesConfig().sizes(height, width)


def test_without_pillow_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what installs it."""
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(UsageError, match="read by Pillow, which is not installed: pip install pillow"):
        read_image("a")
