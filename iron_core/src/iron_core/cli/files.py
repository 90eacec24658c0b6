"""`FILE.py:NAME`: what a Python file defines, before it is in any distribution."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from iron_core.errors import IronError, UnknownName, UsageError


def in_file(name: str) -> tuple[Path, str] | None:
    """The file and the name of `FILE.py:NAME`; None for what is not of that form."""
    file, colon, member = name.rpartition(":")
    return (Path(file), member) if colon and file.endswith(".py") else None


def member(path: Path, name: str) -> Any:
    """What the file at `path` defines under `name`. UsageError for a file that is not there or does not import, UnknownName for a
    name that it does not define."""
    if not path.is_file():
        raise UsageError(f"{path}: no such file.")
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except IronError:
        raise
    except Exception as error:
        raise UsageError(f"{path} does not import: {type(error).__name__}: {error}.") from error
    if not hasattr(module, name):
        raise UnknownName(f"{path} defines no {name}.")
    return getattr(module, name)
