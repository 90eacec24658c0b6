"""Runs a module of classes with a mistake each under the suites they inherit, in a process of its own, and reads which tests failed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
_FAILED = re.compile(r"^(?:FAILED|ERROR) \S*?::Test(\w+)::(\w+)", re.M)


def failures(module: str) -> dict[str, set[str]]:
    """By class, without its `Test`, the tests that failed of `module`.py, those of all of its parameters under one name."""
    options = ("-q", "--tb=line", "-rfE", "-p", "no:cacheprovider", "-p", "no:xdist")
    line = [sys.executable, "-m", "pytest", *options, str(HERE / f"{module}.py")]
    done = subprocess.run(line, capture_output=True, text=True, cwd=HERE.parents[1])
    assert done.returncode == 1, done.stdout + done.stderr
    found: dict[str, set[str]] = {}
    for name, test in _FAILED.findall(done.stdout):
        found.setdefault(name, set()).add(test)
    return found
