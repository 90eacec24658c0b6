"""Where a command line becomes an exit status: 0, 2 for the user's mistake, 1 for ours or a failed gate."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

import click

from iron_core.errors import IronError

#: What a shell gives a program that ended by SIGINT or SIGPIPE.
INTERRUPTED, BROKEN_PIPE = 130, 141


def main(argv: list[str]) -> int:
    """Run `iron ARGV...`; the exit status. Errors are one line on standard error; `--verbose` or `IRON_DEBUG=1` adds the
    traceback."""
    verbose = "--verbose" in argv or os.environ.get("IRON_DEBUG") == "1"
    try:
        from iron_core.cli.commands import iron

        with iron.make_context("iron", list(argv)) as context:
            status = iron.invoke(context)
        sys.stdout.flush()
        return int(status or 0)
    except click.exceptions.Exit as done:
        return done.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo(err=True)
        return INTERRUPTED
    except BrokenPipeError:
        # What is still buffered would fail again when the interpreter flushes it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except click.ClickException as error:
        return _fail(2, _usage(error), verbose)
    except IronError as error:
        return _fail(2, str(error), verbose)
    except Exception as error:
        hint = "" if verbose else " --verbose shows the traceback."
        return _fail(1, f"{type(error).__name__}: {error} (a bug, at {_place(error)}).{hint}", verbose)


def _fail(status: int, message: str, verbose: bool) -> int:
    if verbose:
        traceback.print_exc()
    color = False if os.environ.get("NO_COLOR") else None
    click.echo(click.style("error:", fg="red", bold=True) + f" {message}", err=True, color=color)
    return status


def _usage(error: click.ClickException) -> str:
    """click's message on one line, and where to read what is legal."""
    message = " ".join(error.format_message().split()).replace("?.", "?")
    message = message if message.endswith((".", "?")) else f"{message}."
    context = getattr(error, "ctx", None)
    return f"{message} See `{context.command_path} --help`." if context is not None else message


def _place(error: BaseException) -> str:
    """The file (its folder and name) and line that raised: whose bug it is."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{'/'.join(Path(last.filename).parts[-2:])}:{last.lineno}"
