"""docs/timing.md: its commands run."""

from __future__ import annotations

import shlex

import pytest

from iron_core.cli.entry import main
from tests.docs.pages import page

#: Those of `iron`; the others need a program of the reader's, or take minutes.
COMMANDS = [line.removeprefix("    $ iron ").partition("#")[0] for line in page("timing").splitlines() if line.startswith("    $ iron ")]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_runs_and_tells_microseconds(command, capsys):
    assert main(shlex.split(command)) in (0, None)
    assert "us" in capsys.readouterr().out


def test_the_page_has_both():
    assert len(COMMANDS) == 2
