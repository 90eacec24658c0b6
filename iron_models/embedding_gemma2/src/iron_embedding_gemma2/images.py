"""`read_image`: an image of a file as the numbers that `ImagePatches` takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from iron_core.errors import UsageError, printable
from iron_embedding_gemma2.paths import named

#: Of a picture at most.
MOST_PIXELS = 180_000_000


def read_image(path: str | Path) -> np.ndarray:
    """uint8 (height, width, 3), RGB, of anything that Pillow reads: turned as its EXIF says, the first of several frames, what is
    see-through as its own colour, 16 bits of grey as 8; floats and grey of more bits are refused.

    UsageError where Pillow is not installed, or what lies at `path` is no image or is too large.
    """
    return read_frames(path, None)[0]


def read_frames(path: str | Path, chosen: Callable[[list[int]], Sequence[int]] | None, help: str = "") -> list[np.ndarray]:
    """As `read_image`, of several frames. chosen: given the milliseconds that each frame lasts, 0 where it does not say, names those to
    read; None: the first alone. help: follows what is said of a file that is no image."""
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise UsageError("images are read by Pillow, which is not installed: pip install pillow") from None
    where = named("read_image", path)
    try:
        with Image.open(path) as image:
            if image.width * image.height > MOST_PIXELS:
                raise UsageError(f"{where}: {image.width} x {image.height} pixels; legal: {MOST_PIXELS} in all, at most.")
            found = {}
            frames = [0] if chosen is None else chosen(_lengths(image))
            for frame in sorted({*frames}):
                image.seek(frame)
                found[frame] = _numbers(ImageOps.exif_transpose(image))
            return [found[frame] for frame in frames]
    except FileNotFoundError:
        raise UsageError(f"{where}: there is no such file.") from None
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        said = printable(getattr(error, "strerror", None) or " ".join(str(error).split()), 160)
        raise UsageError(f"{where}: not an image that Pillow reads: {said}{help and f'. {help}'}") from None


def _lengths(image: Any) -> list[int]:
    """Milliseconds of each frame."""
    found = []
    for frame in range(getattr(image, "n_frames", 1)):
        image.seek(frame)
        image.load()  # of some formats it is known then
        found.append(int(image.info.get("duration", 0)))
    return found


def _numbers(image: Any) -> np.ndarray:
    """uint8 RGB of an image of any mode."""
    if image.mode.startswith("I;16") or image.mode == "I":  # converted by Pillow alone, all above 255 is white
        levels = np.asarray(image).astype(np.int64)
        if levels.min() < 0 or levels.max() > 65535:
            raise ValueError("its pixels are of 32 bits, and it does not say what white is")
        return np.repeat((levels >> 8).astype(np.uint8)[..., None], 3, 2)
    if image.mode == "F":
        raise ValueError("its pixels are floats, and it does not say what white is")
    return np.array(image.convert("RGB"))
