"""`read_image`: an image of a file as the numbers that `ImagePatches` takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from iron_core.errors import UsageError

#: Of a picture at most.
MOST_PIXELS = 180_000_000


def read_image(path: str | Path) -> np.ndarray:
    """uint8 (height, width, 3), RGB, of anything that Pillow reads: turned as its EXIF says, the first of several frames, what is
    see-through as its own colour, 16 bits of grey as 8.

    UsageError where Pillow is not installed, or what lies at `path` is no image or is too large.
    """
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise UsageError("images are read by Pillow, which is not installed: pip install pillow") from None
    try:
        with Image.open(path) as image:
            if image.width * image.height > MOST_PIXELS:
                raise UsageError(f"{path}: {image.width} x {image.height} pixels; legal: {MOST_PIXELS} in all, at most.")
            return _numbers(ImageOps.exif_transpose(image))
    except FileNotFoundError:
        raise UsageError(f"{path}: there is no such file.") from None
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        said = " ".join(str(error).split())
        raise UsageError(f"{path}: not an image that Pillow reads: {said}") from None


def _numbers(image: Any) -> np.ndarray:
    """uint8 RGB of an image of any mode."""
    if image.mode.startswith("I;16") or image.mode == "I":  # converted by Pillow alone, all above 255 is white
        grey = (np.asarray(image).astype(np.int64).clip(0, 65535) >> 8).astype(np.uint8)
        return np.repeat(grey[..., None], 3, 2)
    if image.mode == "F":
        raise ValueError("its pixels are floats, and it does not say what white is")
    return np.array(image.convert("RGB"))
