"""Packs for tests: the wheel of a project, put on a path, and its own tests run there."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest


def wheel(project: Path, out: Path) -> Path:
    """The wheel that a project builds, in a folder that is then there."""
    pytest.importorskip("hatchling", reason="hatchling, which builds packs, is not installed")
    line = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    done = subprocess.run(line, cwd=project, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = out.glob("*.whl")
    return made


def put(file: Path, folder: Path) -> None:
    """Install a wheel without scripts into a folder, as an installer would."""
    zipfile.ZipFile(file).extractall(folder)


def run(*line: str, at: Path, site: Path | None = None) -> str:
    """What a command prints that ends well. at: its folder; site: a folder first on the path of Python."""
    path = os.pathsep.join(filter(None, [str(site or ""), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(line, cwd=at, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}, timeout=600)
    assert done.returncode == 0, f"{' '.join(line)}: {done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def passed(project: Path, site: Path) -> int:
    """How many tests of a project pass; AssertionError where one does not, or is skipped."""
    said = run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", at=project, site=site)
    counts = said.splitlines()[-1].split()
    assert counts[1] == "passed", said
    return int(counts[0])
