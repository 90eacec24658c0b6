"""README.md: its tables are what is there. Its examples run with the other pages' (test_blocks.py)."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from iron_core.array.build import has_array
from iron_core.declare.cases import operators
from tests.distributions import DISTRIBUTIONS

ROOT = Path(__file__).parents[2]
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
README = (ROOT / "README.md").read_text()


def test_the_table_of_distributions_is_complete():
    """Every folder with a pyproject.toml of its own, under its distribution's name."""
    found = {one.folder: one.name for one in DISTRIBUTIONS}
    assert dict(re.findall(r"^\| `([\w/]+)` \| ([\w-]+) \|", README, re.M)) == found


def test_the_operators_with_an_array_are_named():
    """All that the catalog has, and no other."""
    named = re.search(r"^\* Arrays of (.*?), for npu1", README, re.M | re.S)[1]
    there = {cls.__name__ for cls in operators("iron-ops-aie") if has_array(cls)}
    assert set(re.findall(r"\b[A-Z]\w*\b", named)) == there


def test_the_one_pip_call_names_every_distribution():
    """For users by its folder, for those who work on the code in place."""
    folders = sorted(one.folder for one in DISTRIBUTIONS)
    for page, arguments in ((README, r"\./.*"), (CONTRIBUTING, r".*-e .*")):
        line = re.search(rf"^    python -m pip install ({arguments})$", page, re.M)[1]
        said = subprocess.run(["sh", "-c", f"echo {line}"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        assert sorted(word.removeprefix("./") for word in said.split() if word != "-e") == folders, line


def test_every_session_is_a_line_of_contributing():
    """`nox -l` has no other."""
    sessions = set(re.findall(r"^@nox\.session\n(?:@.*\n)*def (\w+)", (ROOT / "noxfile.py").read_text(), re.M))
    named = {name for line in re.findall(r"^    nox -s ([\w ]+?)  +#", CONTRIBUTING, re.M) for name in line.split()}
    assert sessions and named == sessions


def test_ci_runs_the_slow_tests_too():
    """What `nox -s tests` leaves out is a session of its own, and no test is in neither."""
    sessions = dict(re.findall(r"^def (\w+)\(session.*?\n((?:    .*\n|\n)+)", (ROOT / "noxfile.py").read_text(), re.M))
    assert '"-m", f"{NEEDS_NOTHING} and not slow"' in sessions["tests"] and '"-m", f"{NEEDS_NOTHING} and slow"' in sessions["slow"]
    run = re.findall(r'^"\$nox" -s (\w+)', (ROOT / ".ci" / "run").read_text(), re.M)
    assert run[:2] == ["tests", "slow"]


def test_nothing_advises_the_public_index():
    """No page says `pip install iron-...`: the name there is another project's."""
    for page in [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("*/README.md"),
        *ROOT.glob("*/*/README.md"),
    ]:
        assert not re.search(r"pip install (-\S+ )*iron-(core|ops|host|lm|llama)", page.read_text()), page


def test_every_local_link_leads_somewhere():
    """Links to files of the repository."""
    for page in [ROOT / "README.md", *ROOT.glob("docs/*.md")]:
        text = re.sub(r"```.*?```|`[^`]*`(?!\])", "", page.read_text(), flags=re.DOTALL)  # code has brackets of its own
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", text):
            assert (page.parent / target).exists(), (page.name, target)
