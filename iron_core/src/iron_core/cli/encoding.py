"""UTF-8 in and out, whatever the locale: of the standard streams, and of the words on a command line."""

from __future__ import annotations

import contextlib
import io
import os
import sys


def use_utf8() -> None:
    """Have the standard streams read and write UTF-8, and stop at no character.

    A terminal keeps its own encoding, in which it shows what it can. What is no text in it, or none in UTF-8, is U+FFFD when
    read, `?` when written to standard output and an escape on standard error. `PYTHONIOENCODING` is obeyed.
    """
    for stream, errors in ((sys.stdin, "replace"), (sys.stdout, "replace"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            own = bool(os.environ.get("PYTHONIOENCODING")) or stream.isatty()
            with contextlib.suppress(io.UnsupportedOperation):  # somebody has read from it already
                stream.reconfigure(encoding=stream.encoding if own else "utf-8", errors=errors)


def as_utf8(text: str) -> str:
    """A word of the command line, read as UTF-8 where its bytes are that; else as the locale has it."""
    try:
        return os.fsencode(text).decode()
    except UnicodeError:
        return text
