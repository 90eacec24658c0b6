"""What is in the cache, and making room in it: entries used least recently go first, none that a process has open."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

import attrs

from iron_core.cache import keylock
from iron_core.cache.entry import MANIFEST, About, about_of

#: The folder of host's in which zig, where it is the compiler, keeps what it likes.
ZIG = "zig"
_DIGEST = re.compile(r"[0-9a-f]{32}")
#: Bytes of the entries below each root when they were last counted, and of those this process added since.
_counted: dict[Path, int] = {}


@attrs.frozen
class Stored:
    """An entry as `iron cache list` has it. `used`: seconds since the epoch; `size`: bytes of its files."""

    path: Path
    backend: str
    about: About
    size: int
    used: float

    @property
    def key(self) -> str:
        return self.path.name

    @property
    def in_use(self) -> bool:
        """Has a process it open?"""
        descriptor = _exclusive(self.path)
        if descriptor is not None:
            keylock.release(descriptor)
        return descriptor is None


def stored(root: Path) -> list[Stored]:
    """Every entry below a cache's root, the one used last first. What only lies there is none."""
    return sorted(_entries(root), key=lambda one: -one.used)


def _entries(root: Path) -> Iterator[Stored]:
    for backend in _folders(root / "iron"):
        for path in _folders(backend):
            about = _about(path)
            if about is not None:
                with contextlib.suppress(OSError):
                    yield Stored(path, backend.name, about, _size(path), path.stat().st_mtime)


def _folders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as found:
            return sorted(Path(one.path) for one in found if not one.name.startswith(".") and one.is_dir(follow_symlinks=False))
    except OSError:
        return []


def _about(path: Path) -> About | None:
    """What an entry is; None of a folder that is none: with neither a manifest nor a digest for a name."""
    if (path.parent.name, path.name) == ("host", ZIG):
        return About(ZIG, "what zig keeps")
    try:
        if not (path / MANIFEST).is_file():
            return About() if _DIGEST.fullmatch(path.name) else None
        return about_of(path)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return About()


def _size(folder: Path) -> int:
    total = 0
    for where, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(where, name)).st_size
    return total


def _exclusive(path: Path) -> int | None:
    """A descriptor of an entry that no process has open, which none can open until it is closed; None if one has."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_DIRECTORY", 0))
    except OSError:
        return None
    try:
        if keylock.fcntl is not None:
            keylock.fcntl.flock(descriptor, keylock.fcntl.LOCK_EX | keylock.fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:  # a file system without locks
        pass
    with contextlib.suppress(OSError):
        if os.fstat(descriptor).st_ino == os.lstat(path).st_ino:
            return descriptor
    keylock.release(descriptor)
    return None


def evict(path: Path) -> bool:
    """Remove an entry unless a process has it open; says whether it is gone. OSError where nothing can be removed."""
    descriptor = _exclusive(path)
    if descriptor is None:
        return not os.path.lexists(path)
    try:
        keylock.remove(path)
    finally:
        keylock.release(descriptor)
    return True


def keep_below(root: Path, limit: int | None, added: Path) -> None:
    """Make room after an entry was `added`: remove what was used least recently until the rest is within the limit.

    The added entry stays, and so does what a process has open; the cache can be that much larger.
    """
    if limit is None:
        return
    if root in _counted:
        _counted[root] += _size(added)
        if _counted[root] <= limit:
            return
    found = stored(root)
    total = sum(one.size for one in found)
    for one in reversed(found):
        if total <= limit:
            break
        if one.path != added and one.about.kind != ZIG:
            with contextlib.suppress(OSError):
                total -= one.size if evict(one.path) else 0
    _counted[root] = total
