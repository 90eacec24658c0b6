"""The sessions npu1 and npu2 of noxfile.py: what they run, and why they skip."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from iron_npu.machine.system import FAMILIES
from tests.device import target

ROOT = Path(__file__).parents[2]


class Skipped(Exception):
    """What `Session.skip` raises."""


class Session:
    """Of nox: it notes what is run."""

    def __init__(self, *posargs: str) -> None:
        self.posargs, self.ran, self.installed = list(posargs), [], []
        self.env: dict[str, str] = {}

    def run(self, *line: str, env: dict[str, str], **_: object) -> None:
        self.ran.append(line)
        self.env = env

    def install(self, *packages: str) -> None:
        self.installed += packages

    def skip(self, why: str) -> None:
        raise Skipped(why)


@pytest.fixture
def noxfile(monkeypatch, tmp_path):
    """Its names, on a machine of which `tmp_path` is the system's list of devices."""
    plain = SimpleNamespace(session=lambda function: function, parametrize=lambda *_: lambda function: function, options=SimpleNamespace())
    monkeypatch.setitem(sys.modules, "nox", plain)
    monkeypatch.chdir(ROOT)
    made = SimpleNamespace(**runpy.run_path(str(ROOT / "noxfile.py")))
    places = made.absent.__globals__
    places["NODES"], places["KNOWN"] = tmp_path / "dev", tmp_path / "sys"
    return made


def plugged(folder: Path, *ids: str | None) -> None:
    for number, name in enumerate(ids):
        (folder / "dev").mkdir(exist_ok=True)
        (folder / "dev" / f"accel{number}").touch()
        if name is not None:
            known = folder / "sys" / f"accel{number}" / "device"
            known.mkdir(parents=True)
            (known / "device").write_text(f"{name}\n")


def test_families_have_the_same_ids_here_and_there(noxfile):
    assert {number: family for family, numbers in noxfile.NPUS.items() for number in numbers} == FAMILIES


@pytest.mark.parametrize("family", target.FAMILIES)
def test_no_device_is_a_skip(noxfile, family, tmp_path):
    with pytest.raises(Skipped, match=r"^no NPU: no device node .*/accel\*$"):
        getattr(noxfile, family)(Session())


@pytest.mark.parametrize(
    ("ids", "why"),
    [
        (["0x17f0"], "no npu1: the device here is 0x17f0, npu1 is 0x1502"),
        (["0x1234", None], "no npu1: the device here is 0x1234, unknown, npu1 is 0x1502"),
    ],
)
def test_another_device_is_a_skip_that_names_both(noxfile, ids, why, tmp_path):
    plugged(tmp_path, *ids)
    with pytest.raises(Skipped, match=why):
        noxfile.npu1(Session())


@pytest.mark.parametrize("family", target.FAMILIES)
def test_exactly_the_tests_of_a_family_run(noxfile, family, tmp_path, monkeypatch):
    """By its marker, in tests/device, with files of what they found; packages of this repository alone and what tests need. The device
    is required, for its node is there."""
    monkeypatch.setenv("IRON_TESTS_REQUIRE", "llama")
    number = noxfile.NPUS[family][0]
    plugged(tmp_path, "0x1234", number)
    session = Session()
    getattr(noxfile, family)(session)
    results = ("--csv-output", f"build/device/{family}.csv", "--junit-xml", f"build/device/{family}.xml")
    assert session.ran == [("pytest", "-m", family, *results, "tests/device")]
    assert session.env == {"IRON_TESTS_REQUIRE": f"llama,{family}"}
    assert all(f"./{folder}" in session.installed for folder in noxfile.DISTRIBUTIONS)
    assert not any("xrt" in package or "mlir" in package for package in session.installed)


def test_what_follows_is_pytests(noxfile, tmp_path):
    """Options behind ours, so that theirs count; paths in place of the folder."""
    plugged(tmp_path, noxfile.NPUS["npu2"][0])
    session = Session("--extensive", "-m", "npu2 and bench", "-n", "auto")
    noxfile.npu2(session)
    assert session.ran[0][-6:] == ("--extensive", "-m", "npu2 and bench", "-n", "auto", "tests/device")
    session = Session("tests/device/test_graphs.py::test_a_gather_is_exact", "-x")
    noxfile.npu2(session)
    assert session.ran[0][-2:] == ("tests/device/test_graphs.py::test_a_gather_is_exact", "-x")
    assert "tests/device" not in session.ran[0]
