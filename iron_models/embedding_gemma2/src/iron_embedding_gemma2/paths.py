"""Paths of media, as Python gives them."""

from __future__ import annotations

import os
from typing import Any

from iron_core.errors import UsageError, printable


def named(where: str, path: Any) -> str:
    """The path as an error shows it. UsageError for what is none."""
    if not isinstance(path, str | os.PathLike):
        raise UsageError(f"{where}: path={printable(repr(path), 60)}; legal: the path of a file.")
    return printable(path, 160)
