"""What is built once and kept: `<home>/iron/<backend>/<key>/`, whole or not there at all.

An entry is filled in a temporary folder, written to the disk and renamed into place, so a crash or a power cut leaves
nothing, and several processes filling one key at once leave one whole entry. A file lock per key lets the others wait
instead of building the same thing. What is found damaged, or could be another user's, is never used: it is built again,
with a warning. The cache stays below a limit; see `iron_core.cache.eviction`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import warnings
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from iron_core.cache import eviction
from iron_core.cache.entry import About, Entry, Faulty, in_use, seal, sync
from iron_core.cache.home import distrust, home, limit_of, make, refusal
from iron_core.cache.keylock import delete, locked, remove, sweep, temporary
from iron_core.cache.keys import digest
from iron_core.errors import CacheError, CacheHomeError, printable

#: Errors of a full or failing disk, or of a limit on what is written, whoever meets them.
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)
#: Entries a process keeps from being removed as long as it lives; more are only kept by the files that are mapped.
_MOST_HELD = 256
_held: dict[tuple[int, int], Entry] = {}
_warned: dict[Any, Any] = {}


class CacheWarning(UserWarning):
    """An entry was found broken and is built again, or the cache cannot be used."""


def warn(text: str) -> None:
    """A warning that is shown once in a process."""
    warnings.warn_explicit(text, CacheWarning, __file__, 0, __name__, _warned)


@contextlib.contextmanager
def optional() -> Iterator[None]:
    """For what a start can do without: a cache that cannot be used is a warning. The user's own mistake is an error still."""
    try:
        yield
    except CacheHomeError:
        raise
    except CacheError as error:
        warn(f"{error} Until then nothing is kept from one start to the next.")


class Cache:
    """One backend's entries. `root` is the cache's root folder, `home()` unless given; CacheError where it is not known."""

    def __init__(self, backend: str, root: Path | str | None = None) -> None:
        self.root = Path(root) if root is not None else home()
        self.folder = self.root / "iron" / backend
        self._limit = limit_of(self.root)

    def path(self, key: str) -> Path:
        """The folder of this key, whether it is there or not. Keys that are no plain name are digested."""
        return self.folder / (key if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}", key) else digest(key))

    def get(self, key: str, own_checks: Collection[str] = ()) -> Path | None:
        """The folder of a whole entry, or None. It is not removed to make room while this process lives.

        own_checks: files that whoever opens them checks; of these the size alone is looked at. CacheError if the cache
        cannot be read, or is another user's.
        """
        self._trust()
        path = self.path(key)
        try:
            entry = Entry.open(path, path.name)
            if entry is None:
                return None
            try:
                entry.check(own_checks)
            except BaseException:
                entry.close()
                raise
        except Faulty:
            return None
        except OSError as error:
            raise self._error(error) from None
        entry.used()
        _hold(entry)
        return path

    def entry(
        self, key: str, build: Callable[[Path], Any], *, about: About | None = None, own_checks: Collection[str] = ()
    ) -> Path:
        """The folder of this key, built by `build(folder)` if it is not there or not whole; see `get`.

        `build` fills the folder it is given; whatever it raises comes through and leaves no entry behind.
        CacheError if the cache cannot be written. The entry's files must not be changed afterwards.
        """
        found = self.get(key, own_checks)
        if found is not None:
            return found
        with self._filled(key, build, about or About(), own_checks, replace=False):
            found = self.get(key, own_checks)
        if found is None:
            raise refusal(self.root, f"{printable(self.path(key))} was written and cannot be read back")
        return found

    def read(self, key: str, name: str) -> bytes | None:
        """The content of a file of an entry; None where there is none that is whole. CacheError as `get`."""
        self._trust()
        path = self.path(key)
        try:
            entry = Entry.open(path, path.name)
            if entry is None:
                return None
            with entry:
                content = entry.read(name)
                entry.used()
                return content
        except Faulty:
            return None
        except OSError as error:
            raise self._error(error) from None

    def keep(self, key: str, name: str, content: bytes, *, about: About | None = None, replace: bool = False) -> None:
        """Keep an entry of one file, unless a whole one is there; with `replace`, even then. Who reads the old one still can.

        CacheError if the cache cannot be written.
        """
        with self._filled(key, lambda folder: (folder / name).write_bytes(content), about or About(), (), replace):
            pass

    def discard(self, key: str) -> None:
        """Remove an entry if it is there; who has it open keeps it."""
        try:
            remove(self.path(key))
        except OSError as error:
            raise self._error(error) from None

    @contextlib.contextmanager
    def _filled(
        self, key: str, build: Callable[[Path], Any], about: About, own_checks: Collection[str], replace: bool
    ) -> Iterator[None]:
        """With an entry that is there, filled if need be; nobody makes room of it before the block ends."""
        path = self.path(key)
        self._trust()
        try:
            make(self.folder)
        except OSError as error:
            raise self._error(error) from None
        self._trust()
        unfinished = temporary(path)
        with contextlib.ExitStack() as guard:
            try:
                with locked(self.folder, path.name):
                    if replace or self.get(key, own_checks) is None:  # else another process filled it while we waited
                        sweep(self.folder, path.name)
                        guard.callback(delete, unfinished)
                        unfinished.mkdir(mode=0o755)
                        build(unfinished)
                        seal(unfinished, path.name, about, own_checks)
                        guard.enter_context(in_use(unfinished))
                        self._displace(path, own_checks)
                        self._publish(unfinished, path, own_checks)
                        sync(self.folder)
            except CacheError:
                raise
            except OSError as error:
                names = (error.filename, error.filename2)
                ours = any(n is not None and str(self.folder) in os.fsdecode(n) for n in names if not isinstance(n, int))
                if ours or error.errno in _DISK:
                    raise self._error(error) from None
                raise
            eviction.keep_below(self.root, self._limit, path)
            yield

    def _displace(self, path: Path, own_checks: Collection[str]) -> None:
        """Take away what is in an entry's place, with a warning if it is damaged."""
        if not os.path.lexists(path):
            return
        try:
            entry = Entry.open(path, path.name)
            if entry is not None:
                with entry:
                    entry.check(own_checks)
        except Faulty as fault:
            if not fault.older:
                warn(f"cache entry {printable(path)}: {fault}; building it again.")
        remove(path)

    def _publish(self, unfinished: Path, path: Path, own_checks: Collection[str]) -> None:
        """Rename into place. Without locks another process may be first; its entry is as good as ours."""
        try:
            unfinished.rename(path)
        except OSError:
            if self.get(path.name, own_checks) is None:
                raise

    def _trust(self) -> None:
        """CacheError if another user may have put something into the folders above the entries."""
        try:
            why = distrust(self.folder, self.root)
        except OSError as error:
            raise self._error(error) from None
        if why:
            raise refusal(self.root, why)

    def _error(self, error: OSError) -> CacheError:
        return refusal(self.root, error)


def _hold(entry: Entry) -> None:
    """Keep an entry open as long as this process lives: what it maps or loads is not removed to make room."""
    status = os.fstat(entry.descriptor)
    which = (status.st_dev, status.st_ino)
    if which in _held or len(_held) >= _MOST_HELD:
        entry.close()
    else:
        _held[which] = entry
