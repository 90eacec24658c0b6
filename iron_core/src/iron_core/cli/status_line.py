"""`status_line`: the line at the foot of a terminal that says what is done, over and over, and gives way to everything else.

It is standard error's. What is written to a standard stream meanwhile takes the line away first, and it comes back below, once what was
written has ended its own line.
"""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Callable
from threading import RLock
from typing import Any

from iron_core.errors import printable

#: Columns of a terminal that does not say how many it has.
_COLUMNS = 80


class StatusLine:
    """One a process: whoever has something to say shares it."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Nothing is shown, and nobody writes."""
        # One that is written in C: Ctrl-C within a lock of Python code would leave it taken.
        self._lock = RLock()
        self._shown = False
        #: Is the terminal's cursor where a line begins?
        self._fresh = True

    def show(self, stream: Any, words: str) -> None:
        """Write them over what the line said, cut to the terminal's width; nothing while somebody else's line has no end."""
        with self._lock:
            if not self._fresh:
                return
            self._shown = True
            self._raw(stream, f"\r{cut(words, columns(stream) - 1)}\033[K")

    def clear(self, stream: Any) -> None:
        """Take the line away."""
        with self._lock:
            if self._shown:
                self._shown = False
                self._raw(stream, "\r\033[K")

    def given_way(self, write: Callable[[str], int], text: str) -> int:
        """Have `write` write a text to a terminal, where the line stood."""
        with self._lock:
            if not text:
                return write(text)
            if sys.stderr is not None:
                self.clear(sys.stderr)
            self._fresh = text.endswith(("\n", "\r"))
            return write(text)

    @staticmethod
    def _raw(stream: Any, text: str) -> None:
        """Past `given_way`, which is what everybody else's writes go through."""
        getattr(stream, "write_beneath", stream.write)(text)
        stream.flush()


status_line = StatusLine()
# Of a process that is forked while another thread writes.
os.register_at_fork(after_in_child=status_line.renew)


def columns(stream: Any) -> int:
    """How many the terminal has now."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or _COLUMNS
    except (OSError, ValueError, AttributeError):
        return _COLUMNS


def cut(words: str, most: int) -> str:
    """The words on so many columns at most, an ellipsis for what does not fit: a line that wraps cannot be taken away."""
    words = printable(words)
    if sum(map(_width, words)) <= most:
        return words
    kept, left = "", most - 1
    for character in words:
        left -= _width(character)
        if left < 0:
            break
        kept += character
    return f"{kept}…" if most > 0 else ""


def _width(character: str) -> int:
    """Columns that a character takes."""
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
