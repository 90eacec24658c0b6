"""What cache keys are made of: digests, and which bytes a file held when it was opened.

A path, a size and a time of change do not tell two files apart: `cp -p`, `rsync -a` and image layers keep all three. What
nobody can set is the time of the last change to the inode (ctime), so it decides; samples of the content are for file
systems that make one up. The device's number is left out: it changes with every mount of a container.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import time
from collections.abc import Iterator
from typing import Any

import attrs

from iron_core.errors import CacheError

#: Bytes of a sample, of the sample a file begins with, and how many there are besides.
_PAGE, _HEAD, _SAMPLES = 4096, 1 << 16, 64
#: Bytes for each of which there is a sample where no ctime can be trusted.
_DENSE = 1 << 20
#: Longer than a tick of the clock that times of change are read from.
_TICK_NS = 20_000_000
_SECOND = 1_000_000_000


def digest(*parts: Any) -> str:
    """32 hex digits of what the parts say. Bytes as they are, anything else by its repr, which must not hold an address."""
    hashed = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else repr(part).encode()
        hashed.update(len(data).to_bytes(8, "little"))
        hashed.update(data)
    return hashed.hexdigest()[:32]


def sources_digest(*modules: str) -> str:
    """Digest of the source files of modules and packages, by path, inode, size and times; none of them is imported.

    For keys that let a start skip work its sources decide: an edit or another installation changes the digest.
    """
    stamps = []
    for module in modules:
        spec = importlib.util.find_spec(module)
        if spec is None or spec.origin is None or not spec.has_location:
            raise CacheError(f"sources_digest: module {module!r} is not installed or has no source file.")
        for path in _sources(os.path.dirname(spec.origin)) if spec.submodule_search_locations else (spec.origin,):
            status = os.stat(path)
            stamps.append((path, *_stamp(status), _content(path) if _made_up(status) else ""))
    return digest(*sorted(stamps))


def known_sources(*modules: str) -> str | None:
    """Their `sources_digest`; None where one is typed at a prompt, or a script's own."""
    try:
        return sources_digest(*modules)
    except (CacheError, ImportError, ValueError):
        return None


def _sources(folder: str) -> Iterator[str]:
    with os.scandir(folder) as found:
        for one in found:
            if one.is_dir():
                yield from _sources(one.path)
            elif one.name.endswith(".py"):
                yield one.path


def _content(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def _stamp(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _made_up(status: os.stat_result) -> bool:
    """Is this the ctime of an image (or of a file system that keeps whole seconds), which another file may have too?"""
    return status.st_ctime_ns % _SECOND == 0


@attrs.frozen
class FileIdentity:
    """Which bytes a file held: its path, inode, size and times, and a digest of samples of its content."""

    path: str
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    samples: str

    @classmethod
    def of(cls, path: str, descriptor: int) -> FileIdentity:
        """That of an open file, which `path` names."""
        status = os.fstat(descriptor)
        # A change within the same tick would have the same time: wait until there can be none.
        age = time.time_ns() - status.st_ctime_ns
        if 0 <= age < _TICK_NS:
            time.sleep((_TICK_NS - age) / _SECOND)
            status = os.fstat(descriptor)
        size = status.st_size
        count = max(_SAMPLES, size // _DENSE) if _made_up(status) else _SAMPLES
        hashed = hashlib.sha256(os.pread(descriptor, _HEAD, 0))
        if size <= _HEAD + count * _PAGE:
            hashed.update(os.pread(descriptor, size, _HEAD))
        else:
            for i in range(count):
                hashed.update(os.pread(descriptor, _PAGE, _HEAD + i * (size - _HEAD - _PAGE) // (count - 1)))
        return cls(os.path.realpath(path), *_stamp(status), hashed.hexdigest()[:32])

    def written_to(self) -> bool:
        """Was the file written to since? A file that another has taken the place of was not."""
        try:
            status = os.stat(self.path)
        except OSError:
            return False
        return status.st_ino == self.inode and _stamp(status)[1:] != (self.size, self.mtime_ns, self.ctime_ns)
