"""Files that people ask for: written whole or not at all, as UTF-8 whatever the locale."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_NAME = 64


def write_whole(path: str | bytes | Path, text: str) -> None:
    """Put a text in a file, as `whole_file` does. What UTF-8 cannot spell, lone surrogates, is written as `\\udc80`."""
    data = text.encode("utf-8", "backslashreplace")
    with whole_file(path) as file:
        file.write(data)


@contextmanager
def whole_file(path: str | bytes | Path) -> Iterator[BinaryIO]:
    """A file that has what is written within the block: all of it, or, where the block raises, what the file held before stays, and
    nothing is left beside it.

    A link is followed; a file keeps its mode; a device or a pipe is written to. OSError says why it was not written, also for a name
    that can be none.
    """
    name = os.fsencode(path)
    if not name or b"\0" in name:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), os.fsdecode(name))
    name = os.path.realpath(name)
    mode = _mode(name)
    if mode is not None and not stat.S_ISREG(mode):
        with open(name, "wb") as file:
            yield file
        return
    if mode is not None and not os.access(name, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fsdecode(name))
    folder, own = os.path.split(name)
    beside = os.path.join(folder, b".%s.%s" % (own[:_NAME], secrets.token_hex(4).encode()))
    opened = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with open(opened, "wb") as file:
            if mode is not None:
                os.chmod(beside, stat.S_IMODE(mode))
            yield file
            file.flush()
            os.fsync(opened)  # a full disk may say so no earlier
        os.replace(beside, name)
    except BaseException:
        os.unlink(beside)
        raise


def writable(path: str | Path) -> None:
    """OSError, as `write_whole` has it, for a path that it could not write: before long work whose result goes there."""
    name = os.path.realpath(os.fsencode(path))
    folder, mode = os.path.dirname(name), _mode(name)
    if mode is not None and stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fsdecode(name))
    if not stat.S_ISDIR(os.stat(folder).st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), os.fsdecode(folder))
    if not os.access(name if mode is not None else folder, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fsdecode(name))


def _mode(name: bytes) -> int | None:
    """A file's type and mode; None if there is none."""
    try:
        return os.stat(name).st_mode
    except FileNotFoundError:
        return None
