"""Wheels and source archives of our distributions: they hold what a stranger who has nothing else needs to know and to run them."""

from __future__ import annotations

import re
import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.metadata import Metadata
from packaging.requirements import Requirement

from tests.distributions import DISTRIBUTIONS, ROOT

NAMES = [one.name for one in DISTRIBUTIONS]


class Wheel:
    """A wheel's files by their path in it, and its metadata."""

    def __init__(self, path: Path) -> None:
        with zipfile.ZipFile(path) as archive:
            self.files = {name: archive.read(name) for name in archive.namelist()}
        (info,) = {name.partition("/")[0] for name in self.files if ".dist-info/" in name}
        self.info = info
        self.metadata: Message = Parser().parsestr(self.files[f"{info}/METADATA"].decode())


def built(kind: str, source: Path, out: Path) -> Path:
    """A wheel or source archive of a distribution's folder, as its build backend makes it."""
    pytest.importorskip("hatchling", reason="hatchling, which builds our distributions, is not installed")
    from hatchling.builders.sdist import SdistBuilder
    from hatchling.builders.wheel import WheelBuilder

    builder = {"sdist": SdistBuilder, "wheel": WheelBuilder}[kind](str(source))
    return Path(next(iter(builder.build(directory=str(out), versions=["standard"]))))


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """Every distribution's wheel, by its name."""
    out = tmp_path_factory.mktemp("wheels")
    return {one.name: Wheel(built("wheel", one.path, out)) for one in DISTRIBUTIONS}


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """Every distribution's source archive, unpacked: the folder in it, by the distribution's name."""
    out, found = tmp_path_factory.mktemp("sdists"), {}
    for one in DISTRIBUTIONS:
        with tarfile.open(built("sdist", one.path, out)) as archive:
            archive.extractall(out / one.name, filter="data")
        (found[one.name],) = (out / one.name).iterdir()
    return found


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


@pytest.mark.parametrize("one", DISTRIBUTIONS, ids=NAMES)
def test_a_source_archive_holds_the_package_and_what_builds_it(unpacked, one):
    """The package's files, its project file, readme and licence: no tests, no caches, nothing that was built."""
    folder = unpacked[one.name]
    files = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}
    package = {name for name in files if name.startswith("src/")}
    source = one.path / "src"
    assert package == {f"src/{f.relative_to(source).as_posix()}" for f in source.rglob("*") if f.is_file() and "__pycache__" not in f.parts}
    assert {"pyproject.toml", "README.md", "LICENSE", "PKG-INFO"} <= files
    assert files - package <= {"pyproject.toml", "README.md", "LICENSE", "PKG-INFO", ".gitignore"}


@pytest.mark.parametrize("name", NAMES)
def test_the_wheel_of_a_source_archive_is_the_same(wheels, unpacked, name, tmp_path):
    """To the byte, metadata included: who builds from source has what others install."""
    assert Wheel(built("wheel", unpacked[name], tmp_path)).files == wheels[name].files


@pytest.mark.parametrize("one", DISTRIBUTIONS, ids=NAMES)
def test_metadata_is_what_an_index_takes(wheels, one):
    """Every field by its rules; and what is needed has a bound from below, distributions of ours one from above too."""
    wheel = wheels[one.name]
    said = Metadata.from_email(wheel.files[f"{wheel.info}/METADATA"], validate=True)
    assert said.name == one.name and said.description
    ours = {each.name: each.project["version"] for each in DISTRIBUTIONS}
    for needed in said.requires_dist or ():
        signs = {each.operator for each in Requirement(str(needed)).specifier}
        assert ">=" in signs, needed
        if needed.name in ours:
            assert "<" in signs and needed.specifier.contains(ours[needed.name]), needed


@pytest.mark.parametrize("one", [one for one in DISTRIBUTIONS if one.offers("lowerings")], ids=lambda one: one.name)
def test_a_wheel_has_the_headers_of_its_kernels(wheels, one):
    """Kernels are compiled where they are installed, so their C++ comes along."""
    headers = [name for name in wheels[one.name].files if name.endswith((".h", ".hpp", ".cpp", ".cc"))]
    assert headers, sorted(wheels[one.name].files)[:20]
