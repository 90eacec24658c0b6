"""Every environment variable that Iron reads is on a page."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.distributions import DISTRIBUTIONS, ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md"), *(one.path / "README.md" for one in DISTRIBUTIONS)]
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


def test_every_variable_is_on_a_page():
    """Whichever distribution reads it."""
    text = "\n".join(page.read_text() for page in PAGES)
    seen = {name: file for one in DISTRIBUTIONS for file in one.sources.rglob("*.py") for name in read(file)}
    missing = {name: str(file) for name, file in seen.items() if name not in USUAL and name not in text}
    assert {"IRON_BACKEND", "NPU_CACHE_HOME", "CXX"} <= set(seen) and not missing, missing


def test_the_walk_sees_every_form(tmp_path):
    file = tmp_path / "m.py"
    forms = 'os.environ.get("A", 1), os.environ["B"], os.getenv("C")'
    file.write_text(f'import os\na = {forms}\nget = os.environ.get\nd = get("D"), other("E")\n')
    assert read(file) == {"A", "B", "C", "D"}
