"""`read_video`: a video of a file or a folder as the frames that stand for it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from iron_core.errors import UsageError
from iron_embedding_gemma2.images import read_frames, read_image
from iron_embedding_gemma2.paths import named

#: Of a video at most; of more, so many that lie evenly.
MOST_FRAMES = 32
_T = TypeVar("_T")
_HELP = "`ffmpeg -i FILE -vf fps=1 DIR/%04d.png` makes a folder of a video's frames."


def read_video(path: str | Path) -> list[np.ndarray]:
    """uint8 (height, width, 3) of each frame, 32 at most: of a folder each image in it, by the numbers in their names; of an image that
    moves (GIF, WebP, APNG) what it shows at each whole second.

    UsageError as `read_image` has it, and for a folder without files.
    """
    where, given = named("read_video", path), str(path)  # Path takes no name for the folder it stands in
    path = Path(path)
    try:
        if not given or not path.is_dir():
            return read_frames(given, lambda lengths: evenly(at_seconds(lengths)), _HELP)
        files = sorted((file for file in path.iterdir() if file.is_file() and not file.name.startswith(".")), key=_numbered)
    except OSError as error:  # a name that is too long, a folder that is not to be read
        raise UsageError(f"{where}: {error.strerror}.") from None
    if not files:
        raise UsageError(f"{where}: a folder without files; legal: one of a video's frames, as images. {_HELP}")
    return [read_image(file) for file in evenly(files)]


def _numbered(file: Path) -> list[str | int]:
    """A name, whose numbers count as such."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", file.name)]


def at_seconds(lengths: Sequence[int]) -> list[int]:
    """Which of frames that last so many milliseconds is shown at each whole second before the end, at 0 in any case; each frame
    where none has a length."""
    if not any(lengths):
        return [*range(len(lengths))]
    ends = np.array([*itertools.accumulate(lengths)])
    seconds = np.arange(max(1, ends[-1] // 1000)) * 1000
    return [int(frame) for frame in np.searchsorted(ends, seconds, side="right")]


def evenly(frames: Sequence[_T]) -> list[_T]:
    """All, or of more than `MOST_FRAMES` as many, from the first to the last."""
    if len(frames) <= MOST_FRAMES:
        return [*frames]
    return [frames[i] for i in np.linspace(0, len(frames) - 1, MOST_FRAMES, dtype=int)]
