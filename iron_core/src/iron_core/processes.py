"""Other programs that run for us, compilers above all: started so that nobody waits for their pipes, ended when whoever wanted them is."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from iron_core.turn import Turn

#: Seconds that a program has to end by itself, and to remove what it wrote meanwhile.
_GRACE = 2.0

#: Held while a process starts, and while this one forks: a child forked meanwhile would have the pipes, and whoever reads
#: them would wait for its end.
_starting = Turn("starting a program")
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_starting.acquire, after_in_parent=_starting.release, after_in_child=_starting.release)


class Running:
    """Programs that run, on any thread. Without a lock, which Ctrl-C within `end` could leave taken: one that is added meanwhile is
    seen by `end`, or sees that it was called."""

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[str]] = []
        self._ended = False

    def add(self, process: subprocess.Popen[str]) -> None:
        self._processes.append(process)
        if self._ended:  # it has done nothing yet, and nobody comes back to see whether it heard
            _end(process, kill=True)

    def end(self) -> None:
        """End them, and those that are added later; kill what does not end."""
        self._ended = True
        _end_all(list(self._processes))


class TimeLimit(Exception):
    """A program did not end in the seconds it was given, and was ended."""


def run(
    line: Sequence[str],
    environment: Mapping[str, str],
    running: Running | None = None,
    *,
    folder: Path | None = None,
    log: Path | None = None,
    seconds: float | None = None,
) -> tuple[int, str]:
    """The exit status of a command, and what it said on standard error; OSError where it does not start.

    running: what it is added to, for who may want to end it. folder: where it works. log: a file for all that it says, which is then what
    is given back. seconds: after them it is ended, and `TimeLimit` raised. What interrupts this call ends it, with all that it started.
    """
    own: Any = {"process_group": 0} if os.name == "posix" else {}  # a driver's own processes are ended with it
    with contextlib.ExitStack() as files:
        into: Any = None if log is None else files.enter_context(log.open("ab"))
        process = files.enter_context(
            started(
                line,
                stdin=subprocess.DEVNULL,
                stdout=into or subprocess.DEVNULL,
                stderr=subprocess.STDOUT if into else subprocess.PIPE,
                env=environment,
                cwd=folder,
                **own,
            )
        )
        if running is not None:
            running.add(process)
        try:
            said = process.communicate(timeout=seconds)[1]
        except subprocess.TimeoutExpired:
            _end_all([process], wait=process)
            raise TimeLimit from None
        except BaseException:
            _end(process)
            raise
    return process.returncode, said if log is None else log.read_text(encoding="utf-8", errors="replace")


def started(line: Sequence[str], **options: Any) -> subprocess.Popen[str]:
    """A process that has just started; options: `subprocess.Popen`'s."""
    with _starting:
        return subprocess.Popen(line, encoding="utf-8", errors="replace", **options)


def output(line: Sequence[str], environment: Mapping[str, str], seconds: float = 60.0) -> str | None:
    """What a command says on standard output; None where it does not run, fails or takes longer."""
    try:
        with started(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, env=environment) as process:
            try:
                said = process.communicate(timeout=seconds)[0]
            except BaseException:
                process.kill()
                raise
    except (OSError, subprocess.TimeoutExpired):
        return None
    return said.strip() if process.returncode == 0 else None


def cxx_commands() -> Iterator[tuple[str, ...]]:
    """Commands that may compile C++ here where $CXX names none, in the order in which they are tried: c++, g++ and clang++ as far as PATH
    has them, then the `ziglang` wheel's."""
    for tool in ("c++", "g++", "clang++"):
        place = shutil.which(tool)
        if place:
            yield (place,)
    if find_spec("ziglang") is not None:
        yield (sys.executable, "-m", "ziglang", "cc")


def _end_all(processes: list[subprocess.Popen[str]], wait: subprocess.Popen[str] | None = None) -> None:
    for process in processes:
        _end(process)
    until = time.monotonic() + _GRACE
    while any(process.returncode is None for process in processes) and time.monotonic() < until:
        if wait is not None:
            wait.poll()
        time.sleep(0.01)  # those who wait for them, on other threads, note that they ended
    for process in processes:
        _end(process, kill=True)


def _end(process: subprocess.Popen[str], kill: bool = False) -> None:
    if process.returncode is None:
        with contextlib.suppress(OSError):
            if os.name == "posix":
                os.killpg(process.pid, signal.SIGKILL if kill else signal.SIGTERM)
            else:
                process.terminate()
