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

from iron_core.cli.status_line import status_line
from iron_core.plugins import foreign


class _Standard(io.TextIOWrapper):
    """A standard stream. It keeps the first error; after that, what is written is dropped and nothing more is read.

    Text is where it is looked at: were bytes written in Python code, a signal's exception between the write and its return
    would have them written again.
    """

    def __init__(self, fd: int, name: str, like: Any) -> None:
        file = io.FileIO(fd, "r" if name == "<stdin>" else "w", closefd=False)
        file.name = name
        self.silent = name == "<stderr>"
        self.terminal = file.isatty()
        self.failure: OSError | None = None
        super().__init__(
            io.BufferedReader(file) if name == "<stdin>" else io.BufferedWriter(file),
            encoding=getattr(like, "encoding", None),
            errors=getattr(like, "errors", None) or ("backslashreplace" if self.silent else "strict"),
            line_buffering=bool(getattr(like, "line_buffering", False)) or self.terminal or self.silent,
            write_through=bool(getattr(like, "write_through", False)),
        )

    def write(self, text: str) -> int:
        return status_line.given_way(self.write_beneath, text) if self.terminal else self.write_beneath(text)

    def write_beneath(self, text: str) -> int:
        """Write it whatever the terminal's status line says."""
        return self._kept(super().write, text, instead=len(text))

    def flush(self) -> None:
        self._kept(super().flush, instead=None)

    def read(self, size: int | None = -1) -> str:
        return self._kept(super().read, size, instead="")

    def readline(self, size: int = -1) -> str:  # type: ignore[override]
        return self._kept(super().readline, size, instead="")

    def __next__(self) -> str:  # type: ignore[override]
        line = self.readline()
        if not line:
            raise StopIteration
        return line

    def _kept(self, call: Any, *arguments: Any, instead: Any) -> Any:
        if self.failure is None:
            try:
                return call(*arguments)
            except OSError as error:
                if isinstance(error, io.UnsupportedOperation):
                    raise
                self.failure = error
                if self.name != "<stdin>":  # what is held back would fail again while Python ends
                    nowhere = os.open(os.devnull, os.O_WRONLY)
                    os.dup2(nowhere, self.fileno())
                    os.close(nowhere)
                if not self.silent:
                    raise
        return instead


class _Streams:
    """The state of this process's streams."""

    def __init__(self) -> None:
        self.adopted: list[_Standard] = []  # none before adopt(): then the streams are somebody else's
        self.answer: TextIO | None = None
        self.commands = 0  # blocks of in_order() under way


_streams = _Streams()


def adopt() -> None:
    """Take over the process's standard streams; for a program, not for a library."""
    if _streams.adopted:
        return
    sys.stdout, sys.stderr = _Standard(1, "<stdout>", sys.stdout), _Standard(2, "<stderr>", sys.stderr)
    _streams.adopted = [sys.stdout, sys.stderr]
    if sys.stdin is None or not sys.stdin.isatty():  # a terminal's line editing wants Python's own
        sys.stdin = _Standard(0, "<stdin>", sys.stdin)
        _streams.adopted.append(sys.stdin)


def failure() -> tuple[str, OSError] | None:
    """Which of standard input and output failed, and how; None if neither did."""
    for stream in _streams.adopted:
        if stream.failure is not None and not stream.silent:
            return ("standard input" if stream.name == "<stdin>" else "standard output"), stream.failure
    return None


def finish() -> bool:
    """Write out what is still held back. False if nobody reads it; any other failure is kept for `failure()`."""
    for stream in (_streams.answer, sys.stdout):
        try:
            if stream is not None and not getattr(stream, "closed", False):
                stream.flush()
        except BrokenPipeError:
            return False
        except OSError:
            if not _streams.adopted:
                raise
    return True


def reserve() -> None:
    """From here to the end of the command standard output is for `answer()` alone. What anybody else prints, a plugin's C code
    and the programs it starts included, goes to standard error. Outside `in_order()`, where nothing would end it: nothing."""
    if _streams.answer is not None or not _streams.commands:
        return
    sys.stdout.flush()
    _streams.answer = sys.stdout
    if _streams.adopted:
        _streams.answer = _Standard(os.dup(1), "<stdout>", sys.stdout)
        _streams.adopted.append(_streams.answer)
        os.dup2(2, 1)
    sys.stdout = _for_others()


def _for_others() -> TextIO:
    """What others have for standard output meanwhile: standard error, in an object of their own to close."""
    return _Standard(2, "<stderr>", sys.stderr) if _streams.adopted else sys.stderr


def answer() -> TextIO:
    """Where a command's answer goes."""
    return _streams.answer or sys.stdout


@contextmanager
def in_order() -> Iterator[None]:
    """For the time of a command: a plugin's code that is imported or asked something prints to standard error. At the end
    `sys.stdout` and who answers are what they were, unless the process is the program's."""
    out, answers, divert = sys.stdout, _streams.answer, foreign.divert
    _streams.commands += 1
    foreign.divert = _diverted
    try:
        yield
    finally:
        _streams.commands -= 1
        foreign.divert = divert
        if not _streams.adopted:
            sys.stdout, _streams.answer = out, answers


@contextmanager
def _diverted() -> Iterator[None]:
    """Standard output is standard error for this block."""
    out, kept = sys.stdout, None
    if _streams.adopted:
        out.flush()
        kept = os.dup(1)
        os.dup2(2, 1)
    sys.stdout = _for_others()
    try:
        yield
    finally:
        sys.stdout = out
        if kept is not None:
            os.dup2(kept, 1)
            os.close(kept)
