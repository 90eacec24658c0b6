"""A file of an image: what kind it is, by its content, and what it holds."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from iron_npu.errors import ImageError
from iron_npu.formats.instructions import Stream, is_stream
from iron_npu.formats.parameters import ParameterTable, is_table
from iron_npu.formats.xclbin import LARGEST, MAGIC, XclbinFile

#: The kinds, as they are called.
XCLBIN, STREAM, TABLE = "xclbin", "instruction stream", "table of parameters"
_HEAD = 64


@attrs.frozen
class Opened:
    """name: the file's. digest: SHA-256 of its bytes."""

    name: str
    kind: str
    content: XclbinFile | Stream | ParameterTable
    nbytes: int
    digest: str


def opened(path: str | Path) -> Opened:
    """The file at a path. ImageError, which names it, where it is none that is known or breaks a rule."""
    name = Path(path).name or str(path)
    with _named(name):
        data = _bytes(Path(path))
    return of(name, data)


def of(name: str, data: bytes) -> Opened:
    """The file of these bytes. ImageError, which has the name, where they are no file that is known or break a rule."""
    content: XclbinFile | Stream | ParameterTable
    with _named(name):
        kind = kind_of(data[:_HEAD])
        if kind == XCLBIN:
            content = XclbinFile.read(data)
        elif kind == STREAM:
            content = Stream.read(data)
        else:
            content = ParameterTable.read(data)
    return Opened(name, kind, content, len(data), hashlib.sha256(data).hexdigest())


@contextmanager
def _named(name: str) -> Iterator[None]:
    """What is wrong inside is told with the file's name."""
    try:
        yield
    except ImageError as error:
        raise ImageError(f"{name}: {error}") from None


def kind_of(head: bytes) -> str:
    """What a file that begins so is. ImageError for anything else."""
    if head.startswith(MAGIC):
        return XCLBIN
    if is_stream(head):
        return STREAM
    if is_table(head):
        return TABLE
    begins = f"begins {head[:8]!r}" if head else "is empty"
    raise ImageError(f"it {begins}; legal: an xclbin, an instruction stream of version 0.1, or a table of parameters.")


def _bytes(path: Path) -> bytes:
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for a writer
            raise ImageError("not a file.")
        if status.st_size > LARGEST:
            raise ImageError(f"{status.st_size} bytes; legal: at most {LARGEST}.")
        return path.read_bytes()
    except ImageError:
        raise
    except OSError as error:
        raise ImageError(f"{error.strerror or error}.") from None
    except ValueError as error:  # a NUL in a name
        raise ImageError(f"{error}.") from None
