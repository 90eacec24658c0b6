"""Foreign code: how a plugin is called so that nothing it does ends more than itself."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from traceback import walk_tb
from types import FrameType, ModuleType
from typing import Any

from iron_core.errors import LONGEST, printable

#: Where what a plugin prints goes meanwhile; a command keeps its standard output for itself.
divert: Callable[[], AbstractContextManager[None]] = nullcontext


class Raised(Exception):
    """What foreign code raised: `error`; the message is `said(error)`."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(said(error))
        self.error = error


def said(error: BaseException) -> str:
    """ "TypeError: what it says", on one printable line; whatever the error is."""
    try:
        text = " ".join(str(error).split())
    except Exception as worse:
        text = f"its message cannot be read: {type(worse).__name__}"
    return printable(f"{type(error).__name__}: {text}" if text else type(error).__name__, LONGEST)


def place(error: BaseException, package: str) -> str:
    """ " at kernels.py:7", the innermost line of a package that an error came through; "" where it came through none."""
    lines = [
        f" at {Path(frame.f_code.co_filename).name}:{line}"
        for frame, line in walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] == package
    ]
    return printable(lines[-1]) if lines else ""


def kind_of(thing: Any) -> str:
    """What something is, for a message that wanted something else: "42 (int)", "a function `main`", "a class `Op`"."""
    if isinstance(thing, type):
        return f"a class `{thing.__name__}`"
    if isinstance(thing, ModuleType):
        return f"a module `{thing.__name__}`"
    name = getattr(type(thing), "__name__", "?")
    if name in ("function", "builtin_function_or_method"):
        return f"a function `{thing.__name__}`"
    if thing is None:
        return "None"
    if isinstance(thing, bool | int | float | str | bytes):
        return f"{printable(repr(thing), 60)} ({name})"
    return f"an object of class `{name}`"


@contextmanager
def guarded() -> Iterator[None]:
    """For a call of foreign code. Whatever that raises, SystemExit and a KeyboardInterrupt of its own included, comes out as
    `Raised`.

    Only what a signal's handler raised (Ctrl-C, an alarm) is not the plugin's: it goes on as it is, also where the plugin
    swallowed it.
    """
    arrived: list[BaseException] = []
    with divert(), _noting(arrived):
        try:
            yield
        except BaseException as error:
            if not arrived:
                raise Raised(error) from error
        if arrived:
            raise arrived[0]


@contextmanager
def unchanged() -> Iterator[None]:
    """For an import of foreign code: what it takes from everybody is put back. The folder, standard error, what is on the path (it
    may add to it), the depth of recursion, and how numpy takes numbers that are none."""
    folder, path, depth, errors, told = _folder(), list(sys.path), sys.getrecursionlimit(), _numpy_errors(), sys.stderr
    try:
        yield
    finally:
        sys.stderr = told
        if folder and _folder() != folder:
            os.chdir(folder)
        if any(place not in sys.path for place in path):
            sys.path[:] = [*path, *(place for place in sys.path if place not in path)]
        if sys.getrecursionlimit() != depth:
            sys.setrecursionlimit(depth)
        if _numpy_errors() != errors:
            sys.modules["numpy"].seterr(**errors)


def _folder() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return ""


def _numpy_errors() -> dict[str, str]:
    """`numpy.geterr()`, without importing numpy: then it is what it would be."""
    numpy = sys.modules.get("numpy")
    asked = getattr(numpy, "geterr", None)  # none in the middle of its own import
    return asked() if asked is not None else {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}


@contextmanager
def _noting(arrived: list[BaseException]) -> Iterator[None]:
    """Keep what Python's signal handlers raise in this block. The handlers are the same afterwards, whatever was set in it."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are handled in the main thread
        return
    handlers: dict[int, Any] = {n: handler for n in signal.valid_signals() if callable(handler := signal.getsignal(n))}

    def noted(number: int, frame: FrameType | None) -> None:
        try:
            handlers[number](number, frame)
        except BaseException as error:
            arrived.append(error)
            raise

    for number in handlers:
        signal.signal(number, noted)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
