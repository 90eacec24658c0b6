"""The boundary around files: whatever goes wrong while one is read becomes a CheckpointError that names it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from iron_core.errors import CacheError, CheckpointError, IronError, PluginError, UnknownName, UsageError, printable

#: Mistakes of another kind, which have nothing to do with what the file holds.
_OTHERS = (UsageError, CacheError, PluginError, UnknownName)
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
        if not isinstance(error, Exception) and type(error).__module__ != "pyo3_runtime":
            raise  # Ctrl-C, an exit
        if isinstance(error, CheckpointError) and printable(Path(file).name) in str(error):
            raise
        raise CheckpointError(f"{printable(file, _PATH)}: {_said(error)}") from error


def _said(error: BaseException) -> str:
    if isinstance(error, IronError):
        return str(error)
    if isinstance(error, MemoryError):
        return "reading it takes more memory than there is."
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}."
    return f"damaged, or not what its kind of file holds ({type(error).__name__}: {printable(error, 120)})."
