"""Where a command line becomes an exit status: 0, 2 for the user's mistake, 1 for ours or a failed gate."""

from __future__ import annotations

import atexit
import errno
import os
import sys
import time
import traceback
import warnings
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from iron_core.cli import streams
from iron_core.cli.encoding import use_utf8
from iron_core.errors import IronError, printable, sentence
from iron_core.plugins.foreign import said

#: What a shell gives a program that ended by SIGINT or SIGPIPE.
INTERRUPTED, BROKEN_PIPE = 130, 141
#: Seconds that threads of plugins have to end when a command has.
_GRACE = 1.0
#: Warnings of one file that are shown, and characters of each.
_MOST, _LONG = 10, 1000
_warned: Counter[str] = Counter()


def program(argv: list[str], name: str = "iron") -> int:
    """`main` for a process that is this command's alone."""
    streams.adopt()
    warnings.showwarning = _warn
    status = main(argv, name)
    _leave(status)
    return status


def _leave(status: int) -> None:
    """End the process here where a thread that a plugin's import began would keep it for good."""
    known = sys.modules.get("iron_core.plugins.registry")  # a command that asked for no plugin has not imported it
    records = known.registry().records if known is not None and known.registry.cache_info().currsize else ()
    began = [(record, thread) for record in records for thread in record.threads]
    end = time.monotonic() + _GRACE
    for record, thread in began:
        thread.join(max(0.0, end - time.monotonic()))
        if thread.is_alive():
            text = f"a thread of {record.origin} has not ended, and ends with the command. {record.fix}."
            click.echo(f"warning: {text}", err=True)
            atexit._run_exitfuncs()
            for stream in (sys.stdout, sys.stderr):
                with suppress(Exception):
                    stream.flush()
            os._exit(status)


def main(argv: list[str], name: str = "iron") -> int:
    """Run `iron ARGV...`, or `iron-run ARGV...`; the exit status. Errors are one line on standard error; `--verbose` or
    `IRON_DEBUG=1` adds the traceback."""
    use_utf8()
    verbose = "--verbose" in argv or os.environ.get("IRON_DEBUG") == "1"
    with streams.in_order():
        try:
            status = _run(argv, name)
        except BaseException as error:
            status = _told(error, verbose)
        status = status if streams.finish() else BROKEN_PIPE
        failed = streams.failure()
    if failed is None:
        return status
    stream, why = failed
    if why.errno == errno.EPIPE:
        return BROKEN_PIPE
    return _fail(1, f"{stream}: {why.strerror}.", False)


def _run(argv: list[str], name: str) -> int:
    from iron_core.cli.commands import iron, run

    command: click.Command = iron if name == "iron" else run
    with command.make_context(name, list(argv)) as context:
        return int(command.invoke(context) or 0)


def _told(error: BaseException, verbose: bool) -> int:
    """Say what happened; the exit status of it."""
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, SystemExit):
        return _exit(error.code)
    if isinstance(error, KeyboardInterrupt | click.Abort):
        click.echo(err=True)
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):
        return BROKEN_PIPE
    if streams.failure() is not None:
        return 1
    if isinstance(error, click.ClickException):
        return _fail(2, _usage(error), verbose)
    if isinstance(error, IronError):
        return _fail(2, str(error), verbose)
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        what = printable(str(error) if isinstance(error, MemoryError) else "").rstrip(".")
        return _fail(1, f"not enough memory{f': {what}' if what else ''}.", verbose)
    hint = "" if verbose else " --verbose shows the traceback."
    return _fail(1, f"{said(error)} (a bug, at {_place(error)}{_whose(error)}).{hint}", verbose)


def _exit(code: Any) -> int:
    """What Python itself makes of a SystemExit."""
    if code is None or isinstance(code, int):
        return int(code or 0)
    click.echo(code, err=True)
    return 1


def _fail(status: int, message: str, verbose: bool) -> int:
    if verbose:
        traceback.print_exc()
    color = False if os.environ.get("NO_COLOR") else None
    click.echo(click.style("error:", fg="red", bold=True) + f" {message}", err=True, color=color)
    return status


def _warn(message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: str | None = None) -> None:
    """A warning on one line, as a command's user wants it; of what others' modules warn of, so much of each file as may be read."""
    if category.__module__.startswith("iron_core."):
        click.echo(f"warning: {printable(message)}", err=True)
        return
    _warned[filename] += 1
    if _warned[filename] <= _MOST:
        click.echo(f"warning: {printable(message, _LONG)}", err=True)
    elif _warned[filename] == _MOST + 1:
        click.echo(f"warning: {printable(filename)} warns of more, which is not shown", err=True)


def _usage(error: click.ClickException) -> str:
    """click's message on one line, and where to read what is legal."""
    message = sentence(" ".join(error.format_message().split()).replace("?.", "?"))
    context = getattr(error, "ctx", None)
    return f"{message} See `{context.command_path} --help`." if context is not None else message


def _place(error: BaseException) -> str:
    """The file (its folder and name) and line that raised: whose bug it is."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{'/'.join(Path(last.filename).parts[-2:])}:{last.lineno}"


def _whose(error: BaseException) -> str:
    """The distribution whose code, of all plugins', was nearest to where it was raised; nothing if only Iron's was."""
    from iron_core.plugins.registry import registry

    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    for frame in reversed(frames):
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        record = registry().of_package(package)
        if record is not None:
            return "" if record.own else f", of {record.owner}"
    return ""
