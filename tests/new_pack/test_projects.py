"""`iron new-pack`: every kind of project, as it is written, passes its own tests, ruff and mypy."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from iron_core.cli.new_pack import write
from iron_core.cli.new_pack.name import checked
from iron_core.cli.new_pack.project import KINDS, files
from iron_core.declare.stub import stub
from tests.new_pack.packs import passed, put, run, wheel

EXAMPLE = Path(__file__).parents[2] / "examples" / "iron_acme"
#: What the example has; its files are what this makes.
OF_EXAMPLE = ("operator", "model", "format", "reader")
LONGEST = "a-long-name-of-a-company-of-forty-letter"


def made(project: Path) -> dict[str, str]:
    """A project's files, by path."""
    found = (path for path in project.rglob("*") if path.is_file() and not {"__pycache__", "dist", ".ruff_cache"} & {*path.parts})
    return {path.relative_to(project).as_posix(): path.read_text() for path in found}


def test_the_command_says_what_it_wrote(iron_command, tmp_path):
    """An operator, where no kind is named; without its own folder's name where --into says another."""
    done = iron_command("new-pack", "acme-tools", cwd=tmp_path)
    assert done.returncode == 0 and done.stderr == ""
    first, *paths, then = done.stdout.splitlines()
    assert first == f"{len(paths)} files in acme-tools:" and then.startswith("Next: cd acme-tools && python -m pip install")
    assert sorted(path.strip() for path in paths) == sorted(made(tmp_path / "acme-tools"))
    assert "src/acme_tools/squared_relu.py" in made(tmp_path / "acme-tools")
    again = iron_command("new-pack", "acme-tools", "--reader", cwd=tmp_path)
    assert again.returncode == 2 and again.stderr.startswith("error: acme-tools: is there and not empty.")


@pytest.mark.parametrize("kinds", [*((kind,) for kind in KINDS), tuple(KINDS)], ids="-".join)
def test_no_word_is_left_open(kinds):
    """No brace of a template, no placeholder in the licence, no name of another pack."""
    for path, text in files(checked("other-ops"), [KINDS[kind] for kind in kinds]).items():
        assert not re.search(r"\{\{\w|TODO|FIXME|<(name|year)|\[(yyyy|year)\]", text), path
        assert "acme" not in (path + text).lower(), path


def test_the_example_is_what_the_command_writes(tmp_path):
    """`iron new-pack iron-acme --operator --model --format --reader --into examples/iron_acme`, the stub included."""
    folder, paths = write("iron-acme", OF_EXAMPLE, tmp_path / "acme")
    there = made(EXAMPLE)
    assert made(folder) == there and sorted(there) == paths


def test_the_stub_of_a_pack_is_what_its_operators_say(site):
    """It is made when the pack is."""
    put(wheel(EXAMPLE, site.folder.parent / "dist"), site.folder)
    assert (EXAMPLE / "src" / "iron_acme" / "__init__.pyi").read_text() == stub("iron_acme")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_passes_its_own_tests(kind, tmp_path):
    """By its wheel, on a path."""
    project, _ = write(f"my-{kind}", [kind], tmp_path / "project")
    put(wheel(project, tmp_path / "dist"), tmp_path / "site")
    assert passed(project, tmp_path / "site") >= 3


@pytest.mark.slow
@pytest.mark.parametrize("name", ["iron-acme2", LONGEST])
def test_all_kinds_together_pass_ruff_and_mypy(name, tmp_path):
    """As each does alone; lines are short enough with the longest name there is."""
    pytest.importorskip("mypy")
    pytest.importorskip("ruff")
    for kinds in (*((kind,) for kind in KINDS), tuple(KINDS)):
        project, _ = write(name, kinds, tmp_path / "-".join(kinds))
        run(sys.executable, "-m", "ruff", "check", "--no-cache", ".", at=project)
        if kinds in (tuple(KINDS), ("model",)):  # the parts of the others are in the first, but for the model's operator
            run(sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "mypy"), at=project, site=project / "src")
