"""docs/graphs.md: its graph is drawn by the lines that stand there."""

from __future__ import annotations

import re
import shlex

import pytest

from iron_core.cli import main
from tests.docs.pages import files, page
from tests.lm.conftest import TINY

PAGE = page("graphs")
LINES = re.findall(r"^    \$ iron (.*)$", PAGE, re.M)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The page's file, in the current folder."""
    monkeypatch.chdir(tmp_path)
    for name, text in files(PAGE):
        (tmp_path / name).write_text(text)
    return tmp_path


def test_the_graph_of_the_page_draws_itself(folder):
    """What it says of the pictures holds."""
    exec(compile((folder / "tower.py").read_text(), "tower.py", "exec"), {"__name__": "page"})


@pytest.mark.parametrize("line", LINES, ids=[" ".join(line.split()[:2]) for line in LINES])
def test_a_line_of_the_page_draws(folder, capsys, line):
    """Of a small model instead of a large one, and into a file instead of a browser."""
    argv = ["-o" if word == "--open" else word for word in shlex.split(line)]
    argv += ["drawn.html"] if argv[-1] == "-o" else []
    argv = [str(TINY) if word.endswith(".gguf") else word for word in argv]
    assert main(["64" if word == "1024" else word for word in argv]) == 0
    drawn = folder / capsys.readouterr().out.strip()
    assert drawn.read_text().startswith("<!doctype html>")


def test_there_are_lines():
    """Of a file, a model and an operator."""
    assert [line.split()[1] for line in LINES] == ["tower.py:Tower", "llama", "show"]
