"""A lock for each key, and the removal of what is unfinished, faulty or no longer wanted.

The system drops a lock when a process ends, however it ends: a temporary folder whose key nobody locks was left by one
that was killed. A forked child has no part in its parent's locks.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # a platform without it: several processes may build one entry, the first one kept
    fcntl = None  # type: ignore[assignment]

#: Files of the keys that this process has locked.
_held: set[int] = set()

_OPEN = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def temporary(path: Path) -> Path:
    """A new name beside an entry for what is not, or no longer, an entry."""
    return path.with_name(f".{path.name}.tmp-{secrets.token_hex(6)}")


@contextlib.contextmanager
def locked(folder: Path, name: str, waits: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the lock of one key; others wait. waits: called where another has it, before the wait."""
    if fcntl is None:
        yield
        return
    file = folder / f".{name}.lock"
    while True:
        try:
            descriptor = os.open(file, _OPEN, 0o600)
        except OSError:
            if not os.path.lexists(file) or stat.S_ISREG(os.lstat(file).st_mode):
                raise
            remove(file)  # a folder or a link, which is nobody's lock
            continue
        with contextlib.suppress(OSError):  # a file system without locks: go on as without fcntl
            _take(descriptor, waits)
        # Whoever held it before may have removed the file; a lock on a removed file guards nothing.
        with contextlib.suppress(OSError):
            if os.fstat(descriptor).st_ino == os.stat(file).st_ino:
                break
        release(descriptor)
    process = os.getpid()
    _held.add(descriptor)
    try:
        yield
    finally:
        if os.getpid() == process:
            _held.discard(descriptor)
            with contextlib.suppress(OSError):
                os.unlink(file)
            release(descriptor)


def _take(descriptor: int, waits: Callable[[], None] | None) -> None:
    if waits is not None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            waits()
    fcntl.flock(descriptor, fcntl.LOCK_EX)


def release(descriptor: int) -> None:
    """Drop a lock and close its file. A child forked meanwhile has a copy of the file, which would keep the lock."""
    if fcntl is not None:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def _in_child() -> None:
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def sweep(folder: Path, name: str = "") -> None:
    """Remove what killed processes left: the temporary folders of `name`, whose lock we hold, and of any unlocked key."""
    unfinished = [(left, left.name[1:].rpartition(".tmp-")[0]) for left in folder.glob(".*.tmp-*")]
    for left, other in unfinished:
        if other == name or (fcntl is not None and not os.path.lexists(folder / f".{other}.lock")):
            delete(left)
    if fcntl is None:
        return
    for file in folder.glob(".*.lock"):
        other = file.name[1 : -len(".lock")]
        if other == name:
            continue
        with contextlib.suppress(OSError):
            descriptor = os.open(file, _OPEN & ~os.O_CREAT)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(descriptor).st_ino == os.stat(file).st_ino:
                    for left in folder.glob(f".{other}.tmp-*"):
                        delete(left)
                    os.unlink(file)
            finally:
                release(descriptor)


def remove(path: Path) -> None:
    """Remove what is at a path so that no one sees half of it; who has opened it keeps it."""
    trash = temporary(path)
    try:
        path.rename(trash)
    except FileNotFoundError:
        return
    delete(trash)


def delete(path: Path) -> None:
    """Delete a folder with what is in it, a file or a link; what cannot be deleted stays."""
    with contextlib.suppress(OSError):
        if path.is_symlink() or not path.is_dir():
            path.unlink()
            return
        path.chmod(0o700)
    shutil.rmtree(path, ignore_errors=True)
