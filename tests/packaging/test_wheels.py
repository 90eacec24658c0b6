"""The wheels of our distributions: built, they hold what a stranger who has nothing else needs to know and to run them."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from email.message import Message
from email.parser import Parser

import pytest

from tests.distributions import DISTRIBUTIONS, ROOT

NAMES = [one.name for one in DISTRIBUTIONS]


class Wheel:
    """A wheel's files by their path in it, and its metadata."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self.files = {name: archive.read(name) for name in archive.namelist()}
        (info,) = {name.partition("/")[0] for name in self.files if ".dist-info/" in name}
        self.info = info
        self.metadata: Message = Parser().parsestr(self.files[f"{info}/METADATA"].decode())


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """Every distribution's wheel, by its name."""
    pytest.importorskip("hatchling", reason="hatchling, which builds our wheels, is not installed")
    out = tmp_path_factory.mktemp("wheels")
    line = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d"]
    for one in DISTRIBUTIONS:
        subprocess.run([*line, str(out / one.name)], cwd=one.path, check=True, capture_output=True)
    return {name: Wheel(zipfile.ZipFile(next((out / name).glob("*.whl")))) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_a_wheel_says_whose_it_is_and_on_what_terms(wheels, name):
    """Licence by its SPDX name and in full, authors, addresses, what it is about, the Pythons it runs on."""
    wheel = wheels[name]
    said = wheel.metadata
    assert said["License-Expression"] == "Apache-2.0"
    assert wheel.files[f"{wheel.info}/licenses/LICENSE"] == (ROOT / "LICENSE").read_bytes()
    assert said["Author"] and said["Summary"] and said.get_all("Project-URL")
    assert said["Description-Content-Type"] == "text/markdown" and said.get_payload().strip()
    about = said.get_all("Classifier") or []
    assert {"Typing :: Typed", "Programming Language :: Python :: 3"} <= set(about)
    oldest = re.fullmatch(r">=3\.(\d+)", said["Requires-Python"])
    assert oldest and f"Programming Language :: Python :: 3.{oldest[1]}" in about
    assert f"Programming Language :: Python :: 3.{int(oldest[1]) - 1}" not in about
    assert not [one for one in about if one.startswith("License")], "an SPDX licence leaves no room for a classifier of one"


@pytest.mark.parametrize("one", DISTRIBUTIONS, ids=NAMES)
def test_a_wheel_holds_its_package(wheels, one):
    """Every file of the source tree, types' marker included, and nothing of another package."""
    wheel = wheels[one.name]
    tree = {f"{one.package}/{f.relative_to(one.sources).as_posix()}" for f in one.sources.rglob("*") if f.is_file()}
    tree = {name for name in tree if "__pycache__" not in name}
    start = {"_iron_start.py"} if one.package == "iron_core" else set()
    assert f"{one.package}/py.typed" in tree
    assert {name for name in wheel.files if not name.startswith(wheel.info)} == tree | start


def test_all_of_them_say_the_same_of_themselves(wheels):
    """One version, one licence, one set of authors, addresses and classifiers: each distribution is a part of one project."""
    common = ("Version", "License-Expression", "Author", "Project-URL", "Requires-Python", "Classifier")
    assert len({tuple(tuple(wheel.metadata.get_all(key) or ()) for key in common) for wheel in wheels.values()}) == 1
