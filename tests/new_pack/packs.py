"""Packs for tests: the wheel of a project, put on a path, and its own tests run there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Mapping
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


def run(*line: str, at: Path, site: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """What a command prints that ends well. at: its folder; site: a folder first on the path of Python; env: all variables, where they
    are not this process's."""
    env = env or os.environ
    path = os.pathsep.join(filter(None, [str(site or ""), env.get("PYTHONPATH")]))
    done = subprocess.run(line, cwd=at, capture_output=True, text=True, env={**env, "PYTHONPATH": path}, timeout=600)
    assert done.returncode == 0, f"{' '.join(line)}: {done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def apart(others: Path) -> dict[str, str]:
    """Variables for an environment made anew, where nothing of this one is there but what others published, and nothing is fetched.

    others: an empty folder, in which these modules and distributions are then links.
    """
    for place in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for entry in Path(place).iterdir():
            if not re.match(r"iron[_-]|_iron_start|__editable__|.*\.pth$|pip(-|$)", entry.name) and not (others / entry.name).exists():
                (others / entry.name).symlink_to(entry)
    (others / "bin").symlink_to(sysconfig.get_path("scripts"))  # where ruff's module looks for its program
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_", "IRON_", "VIRTUAL_ENV"))}
    return env | {"PYTHONPATH": str(others), "PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def passed(project: Path, site: Path | None = None, *, python: str = sys.executable, env: Mapping[str, str] | None = None) -> int:
    """How many tests of a project pass; AssertionError where one does not."""
    said = run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", at=project, site=site, env=env)
    counts = said.splitlines()[-1].split()
    assert counts[1].rstrip(",") == "passed", said
    return int(counts[0])
