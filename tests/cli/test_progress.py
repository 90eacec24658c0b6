"""Signs of life during long work: on a terminal alone."""

from __future__ import annotations

import io
import time

import pytest

from iron_core.cli import progress
from iron_core.cli.progress import working


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_EVERY_S", 0.01)
    monkeypatch.setenv("TERM", "xterm")


def shown(stream: io.StringIO, what: object, monkeypatch: pytest.MonkeyPatch, until: str = "") -> str:
    """What is written during some work, which goes on until it shows."""
    monkeypatch.setattr("sys.stderr", stream)
    with working(what):  # type: ignore[arg-type]
        end = time.monotonic() + 10
        while until not in stream.getvalue() and time.monotonic() < end:
            time.sleep(0.01)
    return stream.getvalue()


def test_words_of_the_moment_are_shown_and_taken_away(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over one another on one line, which is empty at the end."""
    steps = iter(range(1000))
    text = shown(Terminal(), lambda: f"step {next(steps)}", monkeypatch, "step 2")
    assert [line.split(",")[0] for line in text.split("\r")[1:4]] == ["step 0", "step 1", "step 2"]
    assert "\n" not in text and text.endswith("\r\033[K")
    assert "compiling, 0 s" in shown(Terminal(), "compiling", monkeypatch, "compiling")


def test_nothing_is_shown_elsewhere(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a pipe, and on a terminal that has no lines to go back to."""
    asked: list[int] = []
    for stream, terminal in ((io.StringIO(), "xterm"), (Terminal(), "dumb")):
        monkeypatch.setenv("TERM", terminal)
        monkeypatch.setattr("sys.stderr", stream)
        with working(lambda: str(asked.append(1))):
            time.sleep(0.05)
        assert stream.getvalue() == "" and not asked
