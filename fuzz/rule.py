"""The rule: a file is taken, or refused with the documented error, whose message is one short printable line that names the file.
Whatever else comes out of a reader is a fault."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from fuzz.mutation import Mutator
from iron_core.errors import LONGEST, CheckpointError


class Fault(AssertionError):
    """A reader broke the rule."""


def told(error: BaseException, names: Iterable[str], legal: tuple[type[BaseException], ...] = (CheckpointError,)) -> str:
    """ "refused", if an error is as the rule says."""
    if not isinstance(error, legal):
        raise Fault(f"{type(error).__name__} is not the documented error: {str(error)[:300]!r}") from error
    text = str(error)
    if not text.isprintable():
        raise Fault(f"not printable: {text[:300]!r}") from error
    if len(text) > LONGEST:
        raise Fault(f"{len(text)} characters: {text[:300]!r}") from error
    if not any(name in text for name in names):
        raise Fault(f"names no file: {text!r}") from error
    return "refused"


def emptied(folder: Path) -> Path:
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return folder


def damaged(mutator: Mutator, model: Any, write: Callable[[Any], bytes], whole: float = 0.05) -> bytes:
    """The bytes of a model changed by structure, sometimes of its bytes changed too, sometimes as it is."""
    draw = mutator.rng.random()
    if draw < whole:
        return write(model)
    if draw < whole + 0.15:
        return mutator.raw(write(model))
    data = write(mutator.tree(model))
    return mutator.raw(data, 1) if draw > 0.9 else data
