"""The boundary around files: whatever goes wrong while one is read becomes a CheckpointError that names it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from iron_core.errors import CacheError, CheckpointError, DeclarationError, IronError, PluginError, UnknownName, UsageError, printable

#: Mistakes of another kind, which have nothing to do with what the file holds.
_OTHERS = (UsageError, CacheError, DeclarationError, PluginError, UnknownName)
#: Characters of a path.
_PATH = 160


@contextmanager
def reading(file: Path | str) -> Iterator[None]:
    """Around the reading of a file or folder: an error it causes is raised as a CheckpointError, one line that names it.

    Readers say what is wrong where they can; this is for what nobody thought of, for the libraries' own errors (a panic of
    one written in Rust is no Exception), and for messages that do not say which file. The cause stays attached.
    """
    try:
        yield
    except _OTHERS:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and not _is_panic(error):
            raise  # Ctrl-C, an exit
        if isinstance(error, CheckpointError) and _names(str(error), Path(file)):
            raise
        raise CheckpointError(f"{printable(file, _PATH)}: {_said(error)}") from error


def _names(message: str, file: Path) -> bool:
    """Does it name the file, or begin with one beside it or in it?"""
    beside = printable(file.parent / "-")[:-1]
    return printable(file.name) in message or (beside != "" and message.startswith(beside))


def _said(error: BaseException) -> str:
    if isinstance(error, IronError):
        return str(error)
    if isinstance(error, MemoryError):
        return "reading it takes more memory than there is."
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}."
    return f"damaged, or not what its kind of file holds ({type(error).__name__}: {printable(error, 120)})."


_TURN = threading.Lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _TURN._at_fork_reinit())  # type: ignore[attr-defined]


@contextmanager
def quietly(file: Path | str) -> Iterator[None]:
    """`reading`, around a call of a library written in Rust, which writes a page to standard error before it panics.

    That page is dropped; whatever else is written there meanwhile comes after the call.
    """
    with reading(file), _TURN, _diverted():
        yield


@contextmanager
def _diverted() -> Iterator[None]:
    try:
        kept = os.dup(2)
    except OSError:  # standard error is closed
        yield
        return
    panicked = False
    with _memory() as place:
        os.dup2(place.fileno(), 2)
        try:
            yield
        except BaseException as error:
            panicked = _is_panic(error)
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            if not panicked and os.fstat(place.fileno()).st_size:
                place.seek(0)
                with suppress(OSError):
                    os.write(2, place.read())


def _memory() -> IO[bytes]:
    """A file that is in no folder."""
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("stderr"), "w+b", buffering=0)
    return TemporaryFile(buffering=0)


def _is_panic(error: BaseException) -> bool:
    return type(error).__module__ == "pyo3_runtime"
