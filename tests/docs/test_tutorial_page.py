"""docs/tutorial.md, followed literally: every file written, every change made, every command run in one shell, in a new environment.

Nothing is fetched: what others publish is taken from the environment that runs the tests.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.distributions import DISTRIBUTIONS, ROOT
from tests.docs.pages import page
from tests.new_pack.packs import apart, wheel

PAGE = page("tutorial")
#: Kind of block, the path above it, and its text.
STEPS = [
    (kind, path, text) for path, kind, text in re.findall(r"(?:^`([^`\n]+)`\n\n)?^```(\w+)\n(.*?)^```", PAGE, re.M | re.S)
]
#: Of Iron's distributions, those whose wheels the page asks for.
FOLDERS = re.findall(r" \./(\w\S*)", next(line for line in PAGE.splitlines() if "pip wheel --no-deps -w FOLDER" in line))


def changed(folder: Path, diff: str) -> None:
    """Make a change to the one file that it names; AssertionError where the lines it changes are not there once."""
    head, *lines = diff.splitlines()[1:]
    file = folder / head.removeprefix("+++ b/")
    before = "".join(f"{line[1:]}\n" for line in lines if line[:1] in " -")
    after = "".join(f"{line[1:]}\n" for line in lines if line[:1] in " +")
    text = file.read_text()
    assert text.count(before) == 1, f"{file.name} has this {text.count(before)} times:\n{before}"
    file.write_text(text.replace(before, after))


def said_in(want: str, said: str) -> bool:
    """Is there a line for each line wanted, in their order, with its words, and "..." for any between?"""
    lines = iter(said.splitlines())
    patterns = [r".*".join(r"\s+".join(map(re.escape, part.split())) for part in line.split("...")) for line in want.splitlines()]
    return all(any(re.search(pattern, line) for line in lines) for pattern in patterns)


class Shell:
    """One shell, whose folder and variables go on from block to block."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.folder, self.start, self.env, self.kept = folder, folder, env, folder.parent / "kept"

    def run(self, block: str) -> str:
        """Run a block that ends well; what it prints."""
        goes_on = f"export -p > {self.kept}; pwd > {self.kept}.pwd; declare -f deactivate > {self.kept}.def || true"
        before = f". {self.kept}; . {self.kept}.def" if self.kept.exists() else ":"
        script = f"set -e\n{before}\n{block}\n{goes_on}\n"
        line = ["bash", "-c", script]
        done = subprocess.run(line, cwd=self.folder, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
        assert done.returncode == 0, f"{block}\n{done.stdout}"
        self.folder = Path(Path(f"{self.kept}.pwd").read_text().strip())
        return done.stdout


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory) -> dict[str, str]:
    """Variables of an environment of its own, where nothing is fetched."""
    return apart(tmp_path_factory.mktemp("others"))


@pytest.mark.slow
def test_the_page_is_followed_to_its_end(elsewhere, tmp_path, cache_home):
    """In a folder with Iron's wheels and nothing else; what it shows is printed."""
    for tool in ("ruff", "mypy"):
        pytest.importorskip(tool)
    folder = tmp_path / "empty"
    (folder / "wheels").mkdir(parents=True)
    for one in DISTRIBUTIONS:
        if one.folder in FOLDERS:
            made = wheel(one.path, tmp_path / "made" / one.name)
            made.rename(folder / "wheels" / made.name)
    assert len(list((folder / "wheels").iterdir())) == len(FOLDERS) == 5
    env = elsewhere | {"NPU_CACHE_HOME": str(cache_home), "PATH": f"{Path(sys.executable).parent}{os.pathsep}{elsewhere['PATH']}"}
    shell, said = Shell(folder, env), ""
    for kind, path, text in STEPS:
        if kind == "sh":
            said = shell.run(text)
        elif kind == "text":
            assert said_in(text, said), f"{text}\nis not in\n{said}"
        elif kind == "diff":
            changed(shell.folder, text)
        else:
            (shell.folder / path).write_text(text)


def test_the_page_has_nothing_that_is_not_followed():
    """Each block is a command, a file with a path, a change, or what a command prints; the wheels are of distributions there are."""
    files, others = ({kind for kind, path, _ in STEPS if bool(path) is named} for named in (True, False))
    assert files == {"python", "cpp"} and others == {"sh", "text", "diff"}
    assert len(STEPS) == len(re.findall(r"^```\w", PAGE, re.M)) >= 30
    assert {*FOLDERS} <= {one.folder for one in DISTRIBUTIONS} and (ROOT / "docs" / "tutorial.md").exists()


def test_shown_lines_are_looked_for_in_their_order():
    """And a change that does not fit is told."""
    assert said_in("a ... c\nd", "x\n a b c\nd") and not said_in("d\na", "a\nd") and not said_in("a ... d", "a b c")
