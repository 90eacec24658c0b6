"""Every environment variable that Iron reads is on a page."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from iron_npu.settings import settings
from tests.distributions import DISTRIBUTIONS, ROOT

#: The system's own, which mean here what they mean everywhere.
USUAL = {"TERM", "NO_COLOR", "PYTHONIOENCODING", "PYTHONPATH"}


def read(file: Path) -> set[str]:
    """The variables that a file reads by name: `os.environ.get("X")`, `os.environ["X"]`, `os.getenv("X")`, or by `get = os.environ.get`."""
    found: set[str] = set()
    text = file.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text if "environ" in text or "getenv" in text else "")):
        said = ast.unparse(node.func) if isinstance(node, ast.Call) else ast.unparse(node.value) if isinstance(node, ast.Subscript) else ""
        name = node.args[:1] if isinstance(node, ast.Call) else [node.slice] if isinstance(node, ast.Subscript) else []
        if said in ("os.environ.get", "os.getenv", "os.environ", "get") and name and isinstance(name[0], ast.Constant):
            if isinstance(name[0].value, str) and name[0].value.isupper():
                found.add(name[0].value)
    return found


def test_every_variable_is_a_row_of_the_page():
    """Whichever distribution reads it, the NPU backend by its settings; and no row is of one that nothing reads."""
    seen = {name for one in DISTRIBUTIONS for file in one.sources.rglob("*.py") for name in read(file)}
    seen |= {field.metadata["variable"] for field in settings()}
    rows = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "variables.md").read_text(), re.M)
    assert {"IRON_BACKEND", "NPU_CACHE_HOME", "CXX"} <= set(rows) and sorted(rows) == sorted(seen - USUAL)


def test_the_tests_own_are_on_a_page():
    """Those that files of tests read and no distribution does, but for what a session of nox gives them."""
    page = (ROOT / "CONTRIBUTING.md").read_text()
    found = {name for file in (ROOT / "tests").rglob("*.py") if "data" not in file.parts for name in read(file) if name.startswith("IRON_")}
    known = set(re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "variables.md").read_text(), re.M))
    given = (ROOT / "noxfile.py").read_text()
    missing = {name for name in found - known if f"`{name}" not in page and f'"{name}"' not in given}
    assert found and not missing, missing


def test_the_walk_sees_every_form(tmp_path):
    file = tmp_path / "m.py"
    forms = 'os.environ.get("A", 1), os.environ["B"], os.getenv("C")'
    file.write_text(f'import os\na = {forms}\nget = os.environ.get\nd = get("D"), other("E")\n')
    assert read(file) == {"A", "B", "C", "D"}
