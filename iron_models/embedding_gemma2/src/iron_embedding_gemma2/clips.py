"""Sound files as the audio tower takes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from iron_core.errors import UsageError, printable
from iron_embedding_gemma2.paths import named
from iron_embedding_gemma2.resampling import resampled

#: Samples a second, of one channel; and those that a file may have.
RATE, RATES = 16000, (4000, 192000)
#: Bytes of samples, or more, that a WAV says it has whose writer could not know.
UNKNOWN = 0x7FFFF000
#: Seconds of a clip at most.
LONGEST = 30


def read(path: str | Path) -> np.ndarray:
    """float32 (samples,), from -1 to 1. UsageError for a file that is no sound, or none that the tower takes; and without soundfile,
    which reads it."""
    try:
        import soundfile
    except (ImportError, OSError) as error:  # the second where its own library is missing
        raise UsageError(f"sound is read by soundfile, which cannot be loaded ({printable(error, 60)}). `pip install soundfile`.") from None
    where = named("read", path)
    try:
        there = Path(path).exists()
    except OSError as error:  # a name that is too long
        raise UsageError(f"{where}: {error.strerror}.") from None
    if not there:
        raise UsageError(f"{where}: there is no such file.")
    try:
        samples, rate = soundfile.read(str(path), dtype="float32", always_2d=True)
    except Exception as error:
        raise UsageError(f"{where}: no sound that soundfile reads ({printable(error, 80)}).") from None
    if cut := _cut(Path(path)):
        raise UsageError(f"{where}: {cut[0]} of {cut[1]} bytes of samples; it is cut off. Legal: a whole file.")
    return checked(samples, rate, where)


def _cut(path: Path) -> tuple[int, int] | None:
    """Of a WAV that ends within its samples: bytes of samples there are, and that it says there are. Of other files None: soundfile
    refuses them."""
    with path.open("rb") as file:
        if file.read(4) != b"RIFF" or file.seek(4, 1) != 8 or file.read(4) != b"WAVE":
            return None
        while len(head := file.read(8)) == 8:
            name, size = head[:4], int.from_bytes(head[4:], "little")
            if name == b"data":
                there = path.stat().st_size - file.tell()
                return (there, size) if there < size < UNKNOWN else None
            file.seek(size + size % 2, 1)
    return None


def of_python(samples: Any, where: str) -> np.ndarray:
    """float32 (n,) at `RATE`, from -1 to 1, as given. UsageError for what is none, and as `checked` has it."""
    legal = f"legal: floats (n,) from -1 to 1, of one channel, {RATE} a second"
    try:
        found = np.asarray(samples)
    except ValueError:  # lists of several lengths
        raise UsageError(f"{where}: no samples; {legal}.") from None
    if found.ndim != 1 or found.dtype.kind != "f":
        raise UsageError(f"{where}: samples of {found.dtype} {list(found.shape)}; {legal}.")
    with np.errstate(over="ignore"):
        return checked(found.astype(np.float32)[:, None], RATE, where)


def checked(samples: Any, rate: int, where: str) -> np.ndarray:
    """Samples (n, channels) as one row of them at `RATE`: channels as their mean, another rate resampled. UsageError names the file for
    what the tower does not take."""
    samples = np.asarray(samples, np.float32)
    low, high = RATES
    if not low <= rate <= high:
        raise UsageError(f"{where}: {rate} samples a second; legal: {low} to {high}. `ffmpeg -i FILE -ar {RATE} OUT.wav` converts.")
    least, most = -(-(321 - 160) * rate // RATE), LONGEST * rate
    if not least <= len(samples) <= most:
        raise UsageError(f"{where}: {len(samples)} samples, {rate} a second; legal: {least} to {most}, which are {LONGEST} s.")
    if not np.isfinite(samples).all():
        raise UsageError(f"{where}: samples that are no finite numbers; it is damaged.")
    mono = samples[:, 0] if samples.shape[1] == 1 else samples.mean(1, dtype=np.float64)
    return (mono if rate == RATE else resampled(mono, rate, RATE)).astype(np.float32)
