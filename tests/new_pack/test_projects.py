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
from tests.distributions import DISTRIBUTIONS
from tests.new_pack.packs import apart, passed, put, run, wheel

EXAMPLE = Path(__file__).parents[2] / "examples" / "iron_acme"
#: What the example has; its files are what this makes.
OF_EXAMPLE = ("operator", "model", "format", "reader")
#: Of Iron's distributions, those that packs and their tests need.
OURS = {"iron-core", *(one for kind in KINDS.values() for one in (*kind.needs, *kind.tests))}
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
def test_every_kind_is_installed_in_an_environment_of_its_own(tmp_path):
    """With pip, from wheels alone; beside Iron's and one another, each passes its tests there."""
    (others := tmp_path / "others").mkdir()
    env, venv = apart(others), tmp_path / "venv"
    run(sys.executable, "-m", "venv", str(venv), at=tmp_path, env=env)
    python = str(venv / "bin" / "python")
    ours = [wheel(one.path, tmp_path / "ours" / one.name) for one in DISTRIBUTIONS if one.name in OURS]
    projects = [write(f"my-{kind}", [kind], tmp_path / kind)[0] for kind in KINDS]
    made = [wheel(project, tmp_path / "made" / project.name) for project in projects]
    run(python, "-m", "pip", "install", "--quiet", *map(str, (*ours, *made)), at=tmp_path, env=env)
    where = run(python, "-c", "import iron_core, my_operator; print(iron_core.__file__, my_operator.__file__)", at=tmp_path, env=env)
    assert where.count(str(venv)) == 2
    for project in projects:
        assert passed(project, python=python, env=env) >= 3


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
