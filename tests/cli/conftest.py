"""The commands, run in this process."""

from __future__ import annotations

import pytest

from iron_core.cli import main


@pytest.fixture
def iron(capsys):
    """`iron ARGV...` in this process: (status, standard output, standard error)."""

    def run(*argv):
        status = main(list(argv))
        told = capsys.readouterr()
        return status, told.out, told.err

    return run
