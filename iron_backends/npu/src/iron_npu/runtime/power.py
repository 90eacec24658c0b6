"""The device alone, and the power mode that it is measured in."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from iron_core.errors import LONGEST, printable
from iron_core.processes import TimeLimit, run
from iron_npu.errors import NpuError
from iron_npu.runtime.device import Npu

#: What programs are run by: status and words of a command.
Command = Callable[[Sequence[str]], tuple[int, str]]
#: The mode that is left behind.
DEFAULT = "default"
#: Seconds that xrt-smi has: after a change the driver lets the clock settle for 3.5.
SECONDS = 60.0


def command(line: Sequence[str]) -> tuple[int, str]:
    """Status and words of a program; -1 where it does not start, or does not end."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            return run(line, os.environ, log=Path(folder) / "log", seconds=SECONDS)
        except OSError as error:
            return -1, f"{line[0]} does not start: {error.strerror}"
        except TimeLimit:
            return -1, f"it did not end in {SECONDS:g} s"


@contextlib.contextmanager
def power_mode(npu: Npu, mode: str | None, by: Command | None = None) -> Iterator[None]:
    """Inside the block the device is in this mode, behind it in its default; None leaves it as it is. It may refuse one while contexts are
    alive, so this process gives back its own before. NpuError where xrt-smi does not do it."""
    if mode is None:
        yield
        return
    npu.give_back()
    _configure(mode, by or command)
    try:
        yield
    finally:
        npu.give_back()
        _configure(DEFAULT, by or command)


def _configure(mode: str, by: Command) -> None:
    line = ("xrt-smi", "configure", "--pmode", mode)
    status, words = by(line)
    if status:
        said = printable(" ".join(words.split()), LONGEST)
        raise NpuError(f"pmode={mode!r}: `{' '.join(line)}` failed ({said}). It may need root, and other processes off the NPU.")


@contextlib.contextmanager
def alone(npu: Npu, lock: Path | None = None) -> Iterator[None]:
    """Inside the block no other thread of this process runs on the device, and no other process measures there. NpuError where one does."""
    import fcntl  # here: there is none on every system that this package is imported on

    place = lock or Path(tempfile.gettempdir()) / "iron-npu.lock"
    with npu.turn, contextlib.ExitStack() as files:
        file = _opened(place)
        files.callback(os.close, file)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise NpuError(f"another process measures on this NPU ({place} is locked); one at a time.") from error
        yield


def _opened(place: Path) -> int:
    """A file to lock, made where it is not there; another user's is only read."""
    try:
        return os.open(place, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except PermissionError:  # Linux lets nobody create what is another's already in a folder that all write to
        return os.open(place, os.O_RDONLY | os.O_CLOEXEC)
