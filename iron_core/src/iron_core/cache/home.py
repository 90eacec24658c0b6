"""The folder that caches lie in: which it is, who may change what is in it, and how much it may hold."""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path

from iron_core.errors import CacheError, CacheHomeError, UsageError, printable

#: Bytes kept unless IRON_CACHE_LIMIT says otherwise; no more than half of the file system.
USUAL_LIMIT = 50 * 10**9
#: Less free than this is called full.
_FREE = 32 << 20
_ADVICE = "Set NPU_CACHE_HOME to a folder you can write to."
_NO_FOLDER = (errno.EEXIST, errno.ENOTDIR, errno.ENOENT, errno.ELOOP, errno.ENAMETOOLONG)
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def home() -> Path:
    """The cache's root: `NPU_CACHE_HOME`, or `~/.npu/cache`; absolute. CacheError where it cannot be known."""
    given = os.environ.get("NPU_CACHE_HOME")
    try:
        if given:
            return Path(os.path.abspath(Path(given).expanduser()))
        return Path(os.path.abspath(Path.home() / ".npu" / "cache"))
    except FileNotFoundError:
        raise CacheHomeError(f"NPU_CACHE_HOME={printable(given or '')} goes out from a working folder that is gone. {_ADVICE}") from None
    except RuntimeError:  # what pathlib raises
        if given:
            raise CacheHomeError(f"NPU_CACHE_HOME={printable(given)}: there is no such user here. {_ADVICE}") from None
        who = f"user {os.getuid()}" if hasattr(os, "getuid") else "this user"
        raise CacheError(f"the default cache folder is not known: HOME is not set and {who} has no home folder. {_ADVICE}") from None


def refusal(folder: Path, why: OSError | str) -> CacheError:
    """The error that a cache folder cannot be used; a CacheHomeError where NPU_CACHE_HOME names none."""
    given = bool(os.environ.get("NPU_CACHE_HOME"))
    mistaken = given and isinstance(why, OSError) and why.errno in _NO_FOLDER
    where = "NPU_CACHE_HOME" if given else "the default cache folder"
    words = cause(why, folder) if isinstance(why, OSError) else why
    return (CacheHomeError if mistaken else CacheError)(f"{where}: {printable(folder)} cannot be used ({words}). {_ADVICE}")


def cause(error: OSError, folder: Path) -> str:
    """What an error of the system says of a cache folder, in words."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        where = "" if error.filename is None or str(folder) in os.fsdecode(error.filename) else f" that {printable(error.filename)} is on"
        return f"the disk{where} is full: {error.strerror}"
    if error.errno == errno.EROFS:
        return "it is mounted read-only"
    if error.errno in (errno.EEXIST, errno.ENOTDIR, errno.ENOENT):
        at = Path(os.fsdecode(error.filename)) if error.filename else Path()
        named = next((p for p in (at, *at.parents) if os.path.lexists(p) and not p.is_dir()), at)
        return f"{printable(named)} is {'a link that leads nowhere' if named.is_symlink() and not named.exists() else 'no folder'}"
    return error.strerror or str(error)


def make(folder: Path) -> None:
    """Make a folder and those above it, none of which others may write to."""
    if folder.is_dir():
        return
    if folder.parent != folder:
        make(folder.parent)
    try:
        folder.mkdir(mode=0o755)
    except FileExistsError:
        if not folder.is_dir():
            raise


def stranger(status: os.stat_result) -> str:
    """Who but this user (and root) may change a file or folder, in words; "" if nobody.

    A group of the owner's own, as many systems give each user one, counts as the owner. In a sticky folder others can
    only add what will be known as theirs.
    """
    if not hasattr(os, "geteuid"):
        return ""
    if status.st_uid not in (os.geteuid(), 0):
        return f"it belongs to user {status.st_uid}"
    if stat.S_ISLNK(status.st_mode):  # whose mode says nothing
        return ""
    sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
    if status.st_mode & stat.S_IWOTH and not sticky:
        return "others may write to it"
    if status.st_mode & stat.S_IWGRP and status.st_gid != status.st_uid and not sticky:
        return f"group {status.st_gid} may write to it"
    return ""


def distrust(folder: Path, top: Path) -> str:
    """Why what is in `folder` might be somebody else's, looking at it and those above up to `top`; "" if it is not."""
    for place in (folder, *folder.parents):
        if os.path.lexists(place):
            for status in (os.lstat(place), os.stat(place)):
                who = stranger(status)
                if who:
                    return who if place == top else f"{printable(place)}: {who}"
        if place == top:
            break
    return ""


def limit() -> int | None:
    """Bytes the cache may hold, by IRON_CACHE_LIMIT: 0 for any number, None where it is not set. UsageError for a wrong value."""
    given = os.environ.get("IRON_CACHE_LIMIT", "").strip()
    return size_of(given, "IRON_CACHE_LIMIT") if given else None


def size_of(text: str, name: str) -> int:
    """Bytes of `20G`, `1.5T`, `1000000`; UsageError, which names `name`, for anything else."""
    found = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?([KMGT]?)B?", text.strip(), re.IGNORECASE | re.ASCII)
    if found is None:
        raise UsageError(f"{name}={printable(text)}; legal: bytes, or a number with K, M, G or T as in 20G; 0 for no limit.")
    return int(float(found[1]) * _UNITS[found[2].upper()])


def limit_of(folder: Path) -> int | None:
    """Bytes a cache in this folder may hold, or None for any number. UsageError for a wrong IRON_CACHE_LIMIT."""
    given = limit()
    if given is not None:
        return given or None
    try:
        disk = os.statvfs(folder)
    except (OSError, AttributeError):
        return USUAL_LIMIT
    return min(USUAL_LIMIT, disk.f_blocks * disk.f_frsize // 2) or None


def troubles() -> list[str]:
    """What is wrong with the cache's folder and limit, a sentence each. Nothing is made."""
    found = []
    try:
        limit()
    except UsageError as error:
        found.append(str(error))
    try:
        folder = home()
    except CacheError as error:
        return [*found, str(error)]
    why = unusable(folder)
    if why:
        return [*found, str(refusal(folder, why))]
    return found + _mount(folder)


def unusable(folder: Path) -> str:
    """Why no entry could be written here; "" if one could."""
    place = folder
    try:
        while not os.path.lexists(place) and place != place.parent:
            place = place.parent
        if not place.is_dir():
            return f"{printable(place)} is {'a link that leads nowhere' if place.is_symlink() else 'no folder'}"
        backends = [Path(one.path) for one in os.scandir(folder / "iron")] if os.path.isdir(folder / "iron") else []
        for below in (folder / "iron", *backends):
            why = distrust(below, folder)
            if why:
                return why
        if hasattr(os, "statvfs") and os.statvfs(place).f_flag & os.ST_RDONLY:
            return "it is mounted read-only"
        if not os.access(place, os.W_OK | os.X_OK):
            return "Permission denied" if place == folder else f"{printable(place)}: Permission denied"
    except OSError as error:
        return cause(error, folder)
    return ""


def is_noexec(path: Path) -> bool:
    """Is it on a file system that programs may not run from?"""
    return hasattr(os, "statvfs") and bool(os.statvfs(path).f_flag & getattr(os, "ST_NOEXEC", 0))


def _mount(folder: Path) -> list[str]:
    """What the file system of a folder that can be used does not let a cache do."""
    if not hasattr(os, "statvfs"):
        return []
    place = next(p for p in (folder, *folder.parents) if p.exists())
    disk, found = os.statvfs(place), []
    free = disk.f_bavail * disk.f_frsize
    if free < _FREE:
        found.append(str(refusal(folder, f"the disk is full: {free / 1e6:.1f} MB are free")))
    if is_noexec(place):
        found.append(
            f"the cache folder {printable(folder)} is on a file system mounted noexec: kernels are copied to memory at every "
            "start. Set NPU_CACHE_HOME to a folder that programs may run from."
        )
    return found
