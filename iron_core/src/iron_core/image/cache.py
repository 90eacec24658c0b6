"""What is built once and kept: `<home>/iron/<backend>/<key>/`, whole or not there at all.

An entry is filled in a temporary folder and renamed into place, so a crash leaves nothing and several
processes filling one key at once leave one whole entry. A file lock per key lets the others wait instead
of building the same thing. A manifest beside the files says what belongs to the entry; one whose files
are missing or changed is rebuilt with a warning.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import re
import secrets
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from iron_core.errors import CacheError

try:
    import fcntl
except ImportError:  # a platform without it: several processes may build one entry, the first one kept
    fcntl = None  # type: ignore[assignment]

#: Changes whenever the layout of an entry does.
FORMAT = 1

MANIFEST = "entry.json"

#: Files up to this many bytes are hashed when an entry is opened; of larger ones only the size is compared.
_HASHED_BYTES = 8 << 20


class CacheWarning(UserWarning):
    """An entry was found broken and is built again."""


def home() -> Path:
    """The cache's root: `NPU_CACHE_HOME`, or `~/.npu/cache`."""
    given = os.environ.get("NPU_CACHE_HOME")
    return Path(given).expanduser() if given else Path.home() / ".npu" / "cache"


def digest(*parts: Any) -> str:
    """32 hex digits of what the parts say. Bytes as they are, anything else by its repr, which must not hold an address."""
    hashed = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else repr(part).encode()
        hashed.update(len(data).to_bytes(8, "little"))
        hashed.update(data)
    return hashed.hexdigest()[:32]


def sources_digest(*modules: str) -> str:
    """Digest of the source files of modules and packages, by path, size and time; none of them is imported.

    For keys that let a start skip work its sources decide: an edit or another installation changes the digest.
    """
    stamps: list[tuple[str, int, int]] = []
    for module in modules:
        spec = importlib.util.find_spec(module)
        if spec is None or spec.origin is None:
            raise CacheError(f"sources_digest: module {module!r} is not installed or has no source file.")
        files = Path(spec.origin).parent.rglob("*.py") if spec.submodule_search_locations else [Path(spec.origin)]
        for file in files:
            stat = file.stat()
            stamps.append((str(file), stat.st_size, stat.st_mtime_ns))
    return digest(*sorted(stamps))


class Cache:
    """One backend's entries. `root` is the cache's root folder, `home()` unless given."""

    def __init__(self, backend: str, root: Path | str | None = None) -> None:
        self.backend = backend
        self.folder = Path(root) if root is not None else home()
        self.folder = self.folder / "iron" / backend

    def path(self, key: str) -> Path:
        """The folder of this key, whether it is there or not. Keys that are no plain name are digested."""
        return self.folder / (key if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}", key) else digest(key))

    def get(self, key: str) -> Path | None:
        """The folder of a whole entry, or None."""
        path = self.path(key)
        try:
            return path if _fault(path) is None else None
        except OSError as error:
            raise self._error(error) from None

    def entry(self, key: str, build: Callable[[Path], Any]) -> Path:
        """The folder of this key, built by `build(folder)` if it is not there or not whole.

        `build` fills the folder it is given; whatever it raises comes through and leaves no entry behind.
        CacheError if the cache cannot be written. The entry's files must not be changed afterwards.
        """
        found = self.get(key)
        if found is not None:
            return found
        path = self.path(key)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._error(error) from None
        with self._lock(path.name):
            found = self.get(key)  # another process may have filled it while we waited
            if found is None:
                self._sweep(path.name)
                self._fill(path, build)
        return path

    def discard(self, key: str) -> None:
        """Remove an entry if it is there."""
        _remove(self.path(key))

    def _fill(self, path: Path, build: Callable[[Path], Any]) -> None:
        temporary = self.folder / f".{path.name}.tmp-{secrets.token_hex(6)}"
        try:
            try:
                temporary.mkdir()
            except OSError as error:
                raise self._error(error) from None
            build(temporary)
            try:
                _seal(temporary)
                fault = _fault(path)
                if fault is not None and path.exists():
                    warnings.warn(f"cache entry {path}: {fault}; building it again.", CacheWarning, stacklevel=4)
                    _remove(path)
                _publish(temporary, path)
            except OSError as error:
                raise self._error(error) from None
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    @contextlib.contextmanager
    def _lock(self, name: str) -> Iterator[None]:
        """Hold the lock of one key; the system drops it when a process ends, however it ends."""
        if fcntl is None:
            yield
            return
        file = self.folder / f".{name}.lock"
        while True:
            try:
                descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
            except OSError as error:
                raise self._error(error) from None
            with contextlib.suppress(OSError):  # a file system without locks: go on as without fcntl
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            # Whoever held it before may have removed the file; a lock on a removed file guards nothing.
            with contextlib.suppress(OSError):
                if os.fstat(descriptor).st_ino == os.stat(file).st_ino:
                    break
            os.close(descriptor)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                os.unlink(file)
            os.close(descriptor)

    def _sweep(self, name: str) -> None:
        """Remove what killed processes left: this key's temporary folders, whose lock we hold, and any unlocked one."""
        for left in self.folder.glob(f".{name}.tmp-*"):
            shutil.rmtree(left, ignore_errors=True)
        if fcntl is None:
            return
        for file in self.folder.glob(".*.lock"):
            other = file.name[1 : -len(".lock")]
            if other == name:
                continue
            with contextlib.suppress(OSError):
                descriptor = os.open(file, os.O_RDWR)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if os.fstat(descriptor).st_ino == os.stat(file).st_ino:
                        for left in self.folder.glob(f".{other}.tmp-*"):
                            shutil.rmtree(left, ignore_errors=True)
                        os.unlink(file)
                finally:
                    os.close(descriptor)

    def _error(self, error: OSError) -> CacheError:
        where = "NPU_CACHE_HOME" if os.environ.get("NPU_CACHE_HOME") else "the default cache folder"
        return CacheError(
            f"{where}: {self.folder} cannot be used ({error.strerror or error}). "
            "Set NPU_CACHE_HOME to a folder you can write to."
        )


def _hash(path: Path) -> str:
    hashed = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            hashed.update(chunk)
    return hashed.hexdigest()


def _seal(folder: Path) -> None:
    """Write the manifest: every file's size, and a hash of those that are cheap to hash again."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            size = path.stat().st_size
            files[path.relative_to(folder).as_posix()] = [size, _hash(path) if size <= _HASHED_BYTES else None]
    (folder / MANIFEST).write_text(json.dumps({"format": FORMAT, "files": files}))


def _fault(folder: Path) -> str | None:
    """What is wrong with an entry, or None when it is whole. OSErrors other than absence come through."""
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        if manifest["format"] != FORMAT:
            return f"its format is {manifest['format']}, this is {FORMAT}"
        for name, (size, hashed) in manifest["files"].items():
            path = folder / name
            if path.stat().st_size != size:
                return f"{name} has another size than when it was written"
            if hashed is not None and _hash(path) != hashed:
                return f"{name} has another content than when it was written"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except (ValueError, KeyError, TypeError):
        return f"{MANIFEST} is not readable"
    return None


def _publish(temporary: Path, path: Path) -> None:
    """Rename into place. Without locks another process may be first; its entry is as good as ours."""
    try:
        temporary.rename(path)
    except OSError:
        if _fault(path) is not None:
            raise


def _remove(path: Path) -> None:
    """Remove an entry so that no one sees half of it."""
    trash = path.with_name(f".{path.name}.tmp-{secrets.token_hex(6)}")
    try:
        path.rename(trash)
    except FileNotFoundError:
        return
    shutil.rmtree(trash, ignore_errors=True)
