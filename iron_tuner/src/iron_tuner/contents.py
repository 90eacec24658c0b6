"""What a package's files say, whenever they were written: the part of a key that an edit of its code changes."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path


@cache
def contents(package: str) -> str:
    """32 hex digits of the files of a package or module, by name and bytes; of none, as at a prompt, "unknown"."""
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        return "unknown"
    if spec is None or not spec.has_location or spec.origin is None:
        return "unknown"
    root = Path(spec.origin).parent
    files = sorted(root.rglob("*")) if spec.submodule_search_locations else [Path(spec.origin)]
    hashed = hashlib.sha256()
    for file in files:
        if file.is_file() and "__pycache__" not in file.parts:
            data = file.read_bytes()
            hashed.update(f"{file.relative_to(root).as_posix()} {len(data)};".encode())
            hashed.update(data)
    return hashed.hexdigest()[:32]
