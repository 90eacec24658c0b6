"""The commands' standard streams: what it means that one is closed, full or read by nobody, and, with --json, who writes.

A stream that fails is no bug: the first failure is kept, so that the command can end with it, and what is written later is
dropped, so that nothing fails again while Python ends. Standard error may fail as it likes.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from iron_core.plugins import foreign


class _Standard(io.FileIO):
    """A standard stream's file. It keeps the first error; after that, what is written is dropped and nothing more is read."""

    def __init__(self, fd: int, what: str, mode: str = "w", silent: bool = False) -> None:
        super().__init__(fd, mode, closefd=False)
        self.name: Any = what
        self.silent = silent
        self.failure: OSError | None = None

    def write(self, data: Any) -> int:
        return self._kept(super().write, data, instead=memoryview(data).nbytes)

    def readinto(self, buffer: Any) -> int:
        return self._kept(super().readinto, buffer, instead=0)

    def readall(self) -> bytes:
        return self._kept(super().readall, instead=b"")

    def _kept(self, call: Any, *arguments: Any, instead: Any) -> Any:
        if self.failure is None:
            try:
                return call(*arguments)
            except OSError as error:
                self.failure = error
                if not self.silent:
                    raise
        return instead


class _Streams:
    """The state of this process's streams."""

    def __init__(self) -> None:
        self.files: list[_Standard] = []  # none before adopt(): then the streams are somebody else's
        self.answer: TextIO | None = None


_streams = _Streams()


def adopt() -> None:
    """Take over the process's standard streams; for a program, not for a library."""
    if _streams.files:
        return
    out, err, given = (_Standard(fd, f"<std{name}>", mode, silent) for fd, name, mode, silent in _KINDS)
    _streams.files = [out, err, given]
    sys.stdout = _text(out, sys.stdout, "strict")
    sys.stderr = _text(err, sys.stderr, "backslashreplace")
    if sys.stdin is None or not sys.stdin.isatty():  # a terminal's line editing wants Python's own
        sys.stdin = io.TextIOWrapper(io.BufferedReader(given), **_as(sys.stdin, "strict"))


_KINDS = ((1, "out", "w", False), (2, "err", "w", True), (0, "in", "r", False))


def _as(like: Any, errors: str) -> dict[str, Any]:
    return {"encoding": getattr(like, "encoding", None), "errors": getattr(like, "errors", None) or errors}


def _text(file: _Standard, like: Any, errors: str) -> TextIO:
    """A text stream over a file, with the manners of another."""
    line = bool(getattr(like, "line_buffering", False)) or file.isatty() or file.silent
    through = bool(getattr(like, "write_through", False))
    return io.TextIOWrapper(io.BufferedWriter(file), **_as(like, errors), line_buffering=line, write_through=through)


def failure() -> tuple[str, OSError] | None:
    """Which of standard input and output failed, and how; None if neither did."""
    for file in _streams.files:
        if file.failure is not None and not file.silent:
            return ("standard input" if file.name == "<stdin>" else "standard output"), file.failure
    return None


def finish() -> bool:
    """Write out what is still held back. False if nobody reads it; any other failure is kept for `failure()`."""
    for stream in (_streams.answer, sys.stdout):
        try:
            if stream is not None:
                stream.flush()
        except BrokenPipeError:
            return False
        except OSError:
            if not _streams.files:
                raise
    return True


def reserve() -> None:
    """From here on standard output is for `answer()` alone. What anybody else prints, a plugin's C code and the programs it
    starts included, goes to standard error."""
    if _streams.answer is not None:
        return
    sys.stdout.flush()
    _streams.answer = sys.stdout
    if _streams.files:
        own = _Standard(os.dup(1), "<stdout>")
        _streams.files.append(own)
        _streams.answer = _text(own, sys.stdout, "strict")
        os.dup2(2, 1)
    sys.stdout = sys.stderr


def answer() -> TextIO:
    """Where a command's answer goes."""
    return _streams.answer or sys.stdout


@contextmanager
def in_order() -> Iterator[None]:
    """For the time of a command: a plugin's code that is imported or asked something prints to standard error. At the end
    `sys.stdout` is what it was, unless the process is the program's."""
    before, foreign.divert = (sys.stdout, foreign.divert), _diverted
    try:
        yield
    finally:
        foreign.divert = before[1]
        if not _streams.files:
            sys.stdout, _streams.answer = before[0], None


@contextmanager
def _diverted() -> Iterator[None]:
    """Standard output is standard error for this block."""
    if sys.stdout is sys.stderr:
        yield
        return
    out, kept = sys.stdout, None
    if _streams.files:
        out.flush()
        kept = os.dup(1)
        os.dup2(2, 1)
    sys.stdout = sys.stderr
    try:
        yield
    finally:
        sys.stdout = out
        if kept is not None:
            os.dup2(kept, 1)
            os.close(kept)
