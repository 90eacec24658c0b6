"""What a build that failed worked on: the last few folders are kept beside the cache's entries, for whoever looks for the cause."""

from __future__ import annotations

import shutil
from pathlib import Path

from iron_core.cache.home import home, make
from iron_core.errors import CacheError

#: Folders that are kept.
MOST = 8


def keep(work: Path, name: str, root: Path | None = None) -> Path:
    """Move a folder to `<root>/iron/failed/<name>` and remove the oldest there beyond `MOST`; where it is now, which is where it was if
    nothing can be kept there. root: a cache's root, `home()` unless given."""
    target = work
    try:
        target = (home() if root is None else root) / "iron" / "failed" / name
        move(work, target)
        for old in sorted(target.parent.iterdir(), key=lambda one: -one.stat().st_mtime_ns)[MOST:]:
            shutil.rmtree(old, ignore_errors=True)
    except (OSError, CacheError):
        return target if target.is_dir() else work
    return target


def move(work: Path, target: Path) -> None:
    """Move a folder to where another may be, which is removed; OSError if it cannot be."""
    make(target.parent)
    shutil.rmtree(target, ignore_errors=True)
    shutil.move(work, target)
