"""One entry of the cache: a folder of files, sealed by a manifest that says whose they are and what is in them.

What is not as the manifest says is never given out: another key's files, a file of another size or content, something
that is no file, or what another user could have put there.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import stat
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import attrs

from iron_core.cache.home import stranger
from iron_core.cache.keylock import fcntl
from iron_core.errors import printable

#: Changes whenever the layout of an entry does.
FORMAT = 2

MANIFEST = "entry.json"
#: A manifest is a few hundred bytes.
_LONGEST = 1 << 20
#: Errors that say nothing of a file.
_SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN)
_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_FOLDER = _FLAGS | getattr(os, "O_DIRECTORY", 0)


class Faulty(Exception):
    """An entry is there, and not whole: why, in words. `older`: it was made by an older Iron, which is no damage."""

    def __init__(self, why: str, older: bool = False) -> None:
        super().__init__(why)
        self.older = older


@attrs.frozen
class About:
    """What an entry is, for people who look into the cache: its `kind`, and what it was made `of`."""

    kind: str = "other"
    of: str = ""


class Entry:
    """An open entry: nobody removes it to make room until it is closed. Its manifest is sound; see `check`."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor
        self.files: dict[str, tuple[int, str | None]] = {}

    @classmethod
    def open(cls, path: Path, key: str) -> Entry | None:
        """The entry of this key, or None where nothing is. Faulty where something else is."""
        while True:
            try:
                descriptor = os.open(path, _FOLDER)
            except FileNotFoundError:
                return None
            except OSError as error:
                if error.errno in _SCARCE:
                    raise
                if error.errno in (errno.ENOTDIR, errno.ELOOP):
                    if path.parent.is_dir():
                        raise Faulty("it is no folder") from None
                    return None
                raise Faulty(f"it cannot be opened ({error.strerror})") from None
            _share(descriptor)
            with contextlib.suppress(OSError):
                if os.fstat(descriptor).st_ino == os.lstat(path).st_ino:
                    break
            os.close(descriptor)  # it was removed while we waited
        entry = cls(path, descriptor)
        try:
            entry._read_manifest(key)
        except BaseException:
            entry.close()
            raise
        return entry

    def close(self) -> None:
        os.close(self.descriptor)

    def __enter__(self) -> Entry:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def check(self, own_checks: Collection[str] = ()) -> None:
        """Faulty unless every file is as it was written; of those in `own_checks` only the size is looked at."""
        for name, (size, hashed) in self.files.items():
            if hashed is None and name not in own_checks:
                raise Faulty(f"{MANIFEST} has no hash of {name}")
            with open(self._open(name, size), "rb") as file, _legible(name):
                if hashed is not None and hashlib.file_digest(file, "sha256").hexdigest() != hashed:
                    raise Faulty(f"{name} has another content than when it was written")

    def read(self, name: str) -> bytes:
        """The content of a file, as it was written. Faulty if it is not."""
        if name not in self.files:
            raise Faulty(f"{name} is missing")
        size, hashed = self.files[name]
        with open(self._open(name, size), "rb") as file, _legible(name):
            content = file.read(size + 1)
        if len(content) != size or hashlib.sha256(content).hexdigest() != hashed:
            raise Faulty(f"{name} has another content than when it was written")
        return content

    def used(self) -> None:
        """Note that it was used: those used least recently go first when room is made."""
        with contextlib.suppress(OSError):
            os.utime(self.descriptor if os.utime in os.supports_fd else self.path)

    def _open(self, name: str, size: int | None = None) -> int:
        """The descriptor of a file of this entry that only its owner could have written."""
        try:
            descriptor = os.open(name, _FLAGS, dir_fd=self.descriptor)
        except FileNotFoundError:
            raise Faulty(f"{name} is missing") from None
        except ValueError:  # a NUL in its name
            raise Faulty(f"{MANIFEST} is not readable") from None
        except OSError as error:
            raise _unreadable(name, error) from None
        status = os.fstat(descriptor)
        why = stranger(status)
        if not stat.S_ISREG(status.st_mode):
            why = "is no file"
        elif why:
            why = f"is not to be trusted: {why}"
        elif size is not None and status.st_size != size:
            why = "has another size than when it was written"
        if why:
            os.close(descriptor)
            raise Faulty(f"{name} {why}")
        return descriptor

    def _read_manifest(self, key: str) -> None:
        who = stranger(os.fstat(self.descriptor))
        if who:
            raise Faulty(f"it is not to be trusted: {who}")
        with open(self._open(MANIFEST), "rb") as file, _legible(MANIFEST):
            raw = file.read(_LONGEST)
        try:
            manifest: Any = json.loads(raw)
            format = manifest["format"]
            if format != FORMAT:
                raise Faulty(f"its format is {printable(format, 20)}, this is {FORMAT}", older=format in range(1, FORMAT))
            if manifest["key"] != key:
                raise Faulty("it is another key's")
            for name, (size, hashed) in manifest["files"].items():
                if not isinstance(size, int) or not isinstance(hashed, str | None):
                    raise ValueError
                self.files[name] = size, hashed
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise Faulty(f"{MANIFEST} is not readable") from None


def about_of(path: Path) -> About:
    """What the manifest of the entry in a folder says it is, right or wrong. OSError, ValueError, KeyError, TypeError or
    RecursionError where that cannot be read."""
    with open(os.open(path / MANIFEST, _FLAGS), "rb") as file:
        manifest: Any = json.loads(file.read(_LONGEST))
    return About(str(manifest["kind"]), str(manifest["of"]))


def _unreadable(name: str, error: OSError) -> Exception:
    """What an error at opening or reading a file is: a fault of the entry, but for what this process is short of."""
    return error if error.errno in _SCARCE else Faulty(f"{name} cannot be read ({error.strerror or error})")


@contextlib.contextmanager
def _legible(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:  # a page that the disk has lost
        raise _unreadable(name, error) from None


def _share(descriptor: int) -> None:
    """Say of an open entry that it is in use, as long as it is open."""
    if fcntl is not None:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_SH)


@contextlib.contextmanager
def in_use(folder: Path) -> Iterator[None]:
    """Nobody removes this folder to make room, wherever it is moved, until the block ends."""
    descriptor = os.open(folder, _FOLDER)
    try:
        _share(descriptor)
        yield
    finally:
        os.close(descriptor)


def seal(folder: Path, key: str, about: About, own_checks: Collection[str] = ()) -> None:
    """Write the manifest of a filled folder, and have the system write all of it to the disk.

    own_checks: files whose content whoever opens the entry checks itself; they get no hash.
    """
    files: dict[str, tuple[int, str | None]] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                name = path.relative_to(folder).as_posix()
                status = os.fstat(file.fileno())
                if status.st_mode & 0o022:  # what the umask gave others
                    path.chmod(stat.S_IMODE(status.st_mode) & ~0o022)
                hashed = None if name in own_checks else hashlib.file_digest(file, "sha256").hexdigest()
                os.fsync(file.fileno())
            files[name] = status.st_size, hashed
    manifest = {"format": FORMAT, "key": key, "kind": about.kind, "of": about.of, "files": files}
    with (folder / MANIFEST).open("x", encoding="utf-8", errors="backslashreplace") as out:
        os.fchmod(out.fileno(), 0o644)
        json.dump(manifest, out)
        out.flush()
        os.fsync(out.fileno())
    sync(folder)


def sync(folder: Path) -> None:
    """Have the system write a folder's own list of names to the disk, where it can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, _FOLDER)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
