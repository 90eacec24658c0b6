"""docs/npu.md: its options, sessions, commands and files are there; its python runs with the other pages'."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from iron_core.cli.commands import iron
from tests.device import choosing, target, weights
from tests.docs.pages import page

ROOT = Path(__file__).parents[2]
PAGE = page("npu")
TABLE = PAGE.partition("| option | what it does |")[2].partition("\n\n")[0]


def test_its_options_are_those_of_the_tests(pytestconfig):
    """All of them, and no other."""
    named = set(re.findall(r"`(--[a-z-]+)", TABLE))
    parser = pytest.Parser(_ispytest=True)
    choosing.pytest_addoption(parser)
    options = {name for option in parser.getgroup("devices").options for name in option.names()}
    assert named == options
    assert "`-n auto`" in TABLE and '`-m "npu2 and bench"`' in TABLE


def test_its_sessions_markers_and_files_are_there():
    sessions = set(re.findall(r"^def (\w+)\(session", (ROOT / "noxfile.py").read_text(), re.M))
    assert {"npu1", "npu2", "sim", "toolchain"} <= set(re.findall(r"nox -s (\w+)", PAGE)) | {"npu1"} <= sessions
    marks = (ROOT / "pyproject.toml").read_text()
    for mark in ("supported_devices", "npu1", "npu2", "extensive", "bench"):
        assert f"`{mark}" in PAGE and re.search(rf'"{mark}\b', marks)
    for path in re.findall(r"(?<![\w/])(tests/[\w/.]+\w)", PAGE):
        assert (ROOT / path).exists(), path
    assert f"`{weights.VARIABLE}` names (`{weights.USUAL}`)" in PAGE
    assert target.lock_file().name.replace(re.search(r"\d+", target.lock_file().name)[0], "UID") in PAGE


def test_its_results_are_where_the_session_leaves_them():
    folder = re.search(r'^RESULTS = "(.*)"', (ROOT / "noxfile.py").read_text(), re.M)[1]
    assert f"`{folder}/npu2.xml`" in PAGE and f"`{folder}/npu2.csv`" in PAGE


@pytest.mark.parametrize("line", ["doctor --npu", "doctor --npu --report report.md"])
def test_a_command_that_it_names_runs(line, tmp_path, monkeypatch):
    """With the status that says what is missing here, and a report."""
    assert f"    iron {line}\n" in PAGE
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(iron, line.split(), standalone_mode=False)
    assert done.exception is None and done.return_value in (0, 1) and "mlir-aie" in done.output
    if "--report" in line:
        assert "## What npu needs" in (tmp_path / "report.md").read_text()


def test_nobody_is_told_that_it_has_run():
    """Until somebody has."""
    assert "**Nothing of Iron has run on a device yet.**" in PAGE and "| **on a device: anything at all** | **nothing yet** |" in PAGE
