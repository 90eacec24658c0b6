"""What may be set of the NPU backend, where from, and that every variable is documented."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import attrs
import pytest

import iron_npu
from iron_core.errors import UsageError
from iron_npu.settings import Settings, settings, variable

SOURCES = Path(iron_npu.__file__).parent
README = Path(__file__).parents[2] / "iron_backends" / "npu" / "README.md"


def test_the_program_comes_before_the_environment_and_that_before_the_default():
    environment = {"IRON_NPU_JOBS": "3", "AIECC_JOBS": "5", "PATH": "/bin"}
    assert Settings().jobs is None and Settings().seconds == 3600
    read = Settings.read(environment, jobs=7)
    assert (read.jobs, read.threads, read.seconds, read.path) == (7, 5, 3600, "/bin")
    assert Settings.read({"IRON_NPU_JOBS": "none"}, jobs=7).jobs == 7


def test_what_is_empty_is_not_set():
    assert Settings.read({"PEANO_INSTALL_DIR": " ", "IRON_NPU_SECONDS": ""}) == Settings()


def test_the_environment_is_this_processes_own(monkeypatch):
    monkeypatch.setenv("PEANO_INSTALL_DIR", "~/peano")
    assert Settings.read().peano == Path("~/peano").expanduser()


@pytest.mark.parametrize("given", ["0", "-1", "two", "1.5", "²"])
def test_a_count_is_a_number(given):
    with pytest.raises(UsageError, match=r"XRT_CONTEXT_CACHE_SIZE=.*; legal: a number, at least 1\."):
        Settings.read({"XRT_CONTEXT_CACHE_SIZE": given})


@pytest.mark.parametrize("given", ["-1", "soon", "nan", "inf"])
def test_a_time_is_seconds(given):
    with pytest.raises(UsageError, match=r"IRON_NPU_SECONDS=.*; legal: seconds"):
        Settings.read({"IRON_NPU_SECONDS": given})


def test_a_folder_of_nobody_is_refused():
    with pytest.raises(UsageError, match=r"IRON_NPU_KEEP=~nobody-here/x: there is no such user"):
        Settings.read({"IRON_NPU_KEEP": "~nobody-here/x"})


def test_settings_are_frozen_and_equal_by_value():
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        Settings().jobs = 3
    assert Settings(jobs=3) == Settings(jobs=3) and hash(Settings(jobs=3)) == hash(Settings(jobs=3))


def test_every_variable_is_a_row_of_the_page():
    """With the words that the field has."""
    page = README.read_text().partition("## Environment variables")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|$", page, re.M))
    said = {field.metadata["variable"]: field.metadata["says"] for field in settings()}
    assert set(rows) == set(said) and all(rows[name].startswith(says) for name, says in said.items())
    assert variable("peano") == "PEANO_INSTALL_DIR"


def test_nothing_else_of_the_environment_is_read():
    """`os.environ` is read in settings.py; elsewhere it is passed on to programs as it is. The backend's first look, which is to cost
    nothing, reads some of these before there are settings; kernels' sources are mlir-aie's own variable while its factories are called."""
    seen = []
    for file in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            parent = ast.unparse(node) if isinstance(node, ast.Call | ast.Subscript) else ""
            if re.match(r"(os\.environ(\.get)?|os\.getenv)[([]", parent):
                said = re.search(r"['\"](\w+)['\"]", parent)
                seen.append((file.name, said[1] if said else ""))
    known = {field.metadata["variable"] for field in settings()}
    assert {file for file, _ in seen} == {"backend.py", "factory.py"}
    assert {name for file, name in seen if file == "backend.py"} <= known
