"""Pins between distributions of Iron and packs for it, where an installer did not see to them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from iron_core import __version__
from iron_core.cli import doctor
from iron_core.errors import PluginError
from iron_core.plugins import pins
from iron_core.plugins.registry import registry

HERE = f"iron-core {__version__} is installed"


@pytest.fixture
def pack(site):
    """A pack that needs these, with an operator that must not be imported where they are not met."""
    pins.refusal.cache_clear()

    def add(*needs: str, name: str = "iron-acme", level: int = 1, version: str = "0.1") -> None:
        modules = {"acme_pins.py": "raise RuntimeError('imported')"}
        site.add(name, version, entries={f"iron.operators.v{level}": {"acme.Op": "acme_pins:Op"}}, modules=modules)
        (info,) = site.folder.glob(f"{name.replace('-', '_')}-*.dist-info")
        with (info / "METADATA").open("a") as file:
            file.writelines(f"Requires-Dist: {each}\n" for each in needs)

    yield add
    pins.refusal.cache_clear()


@pytest.mark.parametrize("needs", ["iron-core<2", "iron-core >=3,<4", "iron_core (==1.9.*)", "Iron.Core>=99; python_version >= '3'"])
def test_a_pack_for_another_iron_is_refused_with_both_versions(pack, iron, needs):
    """By what it says itself, before any of its code runs; doctor says so once, with what to do."""
    pack(needs)
    with pytest.raises(PluginError, match=r"acme\.Op` is provided by iron-acme 0\.1") as refused:
        registry().load("operators", "acme.Op")
    assert HERE in str(refused.value) and "needs iron-core" in str(refused.value) and "imported" not in str(refused.value)
    status, out, _ = iron("operators", "list", "--load")
    assert status == 0 and HERE in out and "incompatible" in out
    status, out, _ = iron("doctor", "--json")
    (said,) = [each for each in json.loads(out)["problems"] if "iron-acme" in each]
    assert status == 1 and said.startswith("iron-acme 0.1 needs iron-core") and HERE in said and "IRON_PLUGINS=-iron-acme" in said


def test_a_pack_of_another_level_is_refused_with_both_numbers(pack, iron):
    """Newer than this iron reads: it is iron-core that is to be upgraded."""
    pack(level=2)
    with pytest.raises(PluginError, match=r"built for operators v2, this iron reads v1\. Upgrade iron-core"):
        registry().load("operators", "acme.Op")
    status, out, _ = iron("doctor")
    assert status == 1 and "built for operators v2, this iron reads v1" in out


@pytest.mark.parametrize(
    "needs", [f"iron-core=={__version__}", "iron-core~=2.0", "iron-core>=2,<3", "iron-core!=1.*", "iron-core<2; extra == 'old'", "numpy<1"]
)
def test_a_pack_whose_pins_are_met_is_loaded(pack, needs):
    """Those of extras, and of what is not Iron's, are no affair of its."""
    pack(needs)
    with pytest.raises(PluginError, match="imported"):
        registry().load("operators", "acme.Op")
    assert not doctor.mismatched(doctor.OWN)


def test_a_distribution_of_ours_beside_another_version_is_a_problem(pack, iron):
    """As an upgrade of a part leaves it: a newer iron-lm, an iron-sim that is gone."""
    pack("iron-core>=3,<4", "iron-nosuch>=1", name="iron-lm", version="3.0")
    pack("iron-lm<1", name="iron-other")
    told = [each for each in json.loads(iron("doctor", "--json")[1])["problems"] if "needs" in each]
    assert any(each.startswith("iron-lm 3.0 needs iron-core") and HERE in each and "in one version" in each for each in told), told
    assert any(each.startswith("iron-other 0.1 needs iron-lm<1, and iron-lm 3.0 is installed") for each in told), told
    assert not any("nosuch" in each for each in told)


def test_iron_itself_fits_together():
    """As these tests run."""
    assert doctor.mismatched(doctor.OWN) == []


@pytest.mark.parametrize(
    ("here", "pin", "fits"),
    [
        ("2.0.0", ">=2,<3", True), ("2.0.0", "<2", False), ("2.0.0", "<=2", True), ("2.0.0", ">2", False), ("2.0.1", ">2", True),
        ("2.10", ">=2.9", True), ("2.0.0", "==2", True), ("2.1", "==2.0.*", False), ("2.0.5", "==2.0.*", True), ("2.1", "!=2.0.*", True),
        ("2.3", "~=2.1", True), ("3.0", "~=2.1", False), ("2.1.4", "~=2.1.1", True), ("2.2", "~=2.1.1", False), ("2.0.0rc1", ">=2", True),
        ("2.0", "", True), ("2.0", "what is no pin", True),
    ],
)  # fmt: skip
def test_versions_are_compared_as_installers_do(monkeypatch, here, pin, fits):
    """By the numbers of releases."""
    monkeypatch.setattr(pins.metadata, "version", lambda name: here)
    assert pins._fits("iron-core", pin) is fits


def test_where_it_is_installed_is_asked_of_the_first_on_the_path(pack, tmp_path: Path):
    """Another version further down holds nothing up."""
    pack("iron-core>=2")
    assert pins.unmet("iron-acme", ("iron-core",)) == [] == pins.unmet("no-such-distribution", ("iron-core",))
