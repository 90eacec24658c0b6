"""A folder of this process, for what is compiled where the cache cannot be used; gone when the process ends."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

_folders: dict[int, Path] = {}


def folder() -> Path:
    """The folder, made when it is first asked for, in `$XDG_RUNTIME_DIR` or where temporary files go. OSError if it cannot be."""
    process = os.getpid()
    if process not in _folders:
        _folders[process] = _made()
        atexit.register(_remove, process)
    return _folders[process]


def _made() -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.path.isabs(runtime) and os.access(runtime, os.W_OK | os.X_OK):
        try:
            return Path(tempfile.mkdtemp(prefix="iron-", dir=runtime))
        except OSError:
            pass
    return Path(tempfile.mkdtemp(prefix="iron-"))


def _remove(process: int) -> None:
    if os.getpid() == process:  # a forked process leaves its parent's alone
        shutil.rmtree(_folders[process], ignore_errors=True)
