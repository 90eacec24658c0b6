"""Distributions that are installed wrong, or oddly: each is told with whose it is, the rest works, and what is advised helps."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import attrs
import pytest

from iron_core.cli import main
from iron_core.plugins.registry import registry

OPERATOR = "from iron_core import UnaryElementwise\nclass Op(UnaryElementwise):\n    def reference(self, x): return x\n"
POINT = "[iron.operators.v1]\nodd.Op = odd_pack:Op\n"
MODULES = {"odd_pack.py": OPERATOR}


def dist(folder: Path, name: str = "iron_odd-0.2.dist-info", **files: str | bytes | None) -> None:
    """A *.dist-info folder: METADATA, entry_points and RECORD as given; None: there is no such file."""
    info = folder / name
    info.mkdir(parents=True)
    files = {"METADATA": "Metadata-Version: 2.1\nName: iron-odd\nVersion: 0.2\n", "entry_points": POINT} | files
    for file, content in files.items():
        if content is not None:
            data = content if isinstance(content, bytes) else content.encode()
            (info / ("entry_points.txt" if file == "entry_points" else file)).write_bytes(data)


@attrs.frozen
class Odd:
    """What lies on the path: `write(folder)`; `modules`: file -> source.

    says: what doctor has of it, as a pattern; "" if there is nothing to tell. owner: who it says it is. kind: problems or notes. loads:
    the name by which its operator is had all the same.
    """

    write: Callable[[Path], None]
    says: str = ""
    owner: str = "iron-odd 0.2"
    kind: str = "problems"
    modules: dict[str, str] = attrs.field(factory=lambda: MODULES)
    loads: str = "odd.Op"


def named(name: str) -> str:
    return f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.2\n"


def two_versions(folder: Path) -> None:
    dist(folder)
    dist(folder, "iron_odd-0.10.dist-info", METADATA=named("iron-odd").replace("0.2", "0.10"), entry_points=POINT)


def two_folders(folder: Path) -> None:
    dist(folder)
    dist(folder.parent / "later", "Iron.Odd-0.1.dist-info", METADATA=named("Iron.Odd").replace("0.2", "0.1"), entry_points=POINT)


def two_owners(folder: Path) -> None:
    dist(folder)
    dist(folder, "iron_even-0.2.dist-info", METADATA=named("iron-even"))


def egg(folder: Path) -> None:
    (folder / "iron_odd.egg-info").mkdir(parents=True)
    (folder / "iron_odd.egg-info" / "PKG-INFO").write_text(named("iron-odd"))
    (folder / "iron_odd.egg-info" / "entry_points.txt").write_text(POINT)


MISSING = r"operators odd\.Op \(iron-odd 0\.2\) is failed: ModuleNotFoundError: No module named 'odd_pack' \(from odd_pack\)\."
CASES = {
    # -- half there ---------------------------------------------------------------------------------
    "modules-gone": Odd(lambda f: dist(f, RECORD="odd_pack.py,,\n"), MISSING, modules={}, loads=""),
    "attribute-gone": Odd(dist, r"AttributeError: module 'odd_pack' has no attribute 'Op'", modules={"odd_pack.py": ""}, loads=""),
    "editable-folder-gone": Odd(lambda f: [dist(f), (f / "odd.pth").write_text("/no/such/folder\n")][0], MISSING, modules={}, loads=""),
    "metadata-gone": Odd(lambda f: dist(f, METADATA=None), "METADATA is missing or names no distribution", "iron_odd 0.2"),
    "metadata-empty": Odd(lambda f: dist(f, METADATA=""), "METADATA is missing or names no distribution", "iron_odd 0.2"),
    "metadata-binary": Odd(lambda f: dist(f, METADATA=b"\x80\x02\xff\xfe\0" * 99), "METADATA cannot be read .*Unicode", "iron_odd 0.2"),
    "metadata-latin-1": Odd(lambda f: dist(f, METADATA=(named("iron-odd") + "Author: Jos\xe9\n").encode("latin-1")),
        "METADATA cannot be read .*UnicodeDecodeError", "iron_odd 0.2"),
    "entry-points-empty": Odd(lambda f: dist(f, entry_points=""), loads=""),
    "entry-points-gone": Odd(lambda f: dist(f, entry_points=None), loads=""),
    "entry-points-binary": Odd(lambda f: dist(f, entry_points=b"\x80\x02\xff\xfe\0" * 99), loads=""),
    "folder-empty": Odd(lambda f: (f / "iron_odd-0.2.dist-info").mkdir(parents=True), loads=""),
    "info-is-a-file": Odd(lambda f: (f / "iron_odd-0.2.dist-info").write_text("no folder"), loads=""),
    # -- twice there --------------------------------------------------------------------------------
    "two-versions": Odd(two_versions, r"version 0\.10 is in the same folder, and holds; \S+/iron_odd-0\.2\.dist-info is what an "
        r"installation left\. Remove that folder\."),
    "two-folders": Odd(two_folders, r"iron-odd 0\.2 in \S+/site comes first on the path; nothing is used of this one in \S+/later\.",
        "Iron.Odd 0.1", "notes"),
    "two-owners": Odd(two_owners, r"is ambiguous: also provided by iron-(even|odd) 0\.2\. Say `iron-\w+:odd\.Op`, or hide one: ",
        "iron-", loads="iron-odd:odd.Op"),
    # -- old or new ---------------------------------------------------------------------------------
    "level-0": Odd(lambda f: dist(f, entry_points=POINT.replace("v1", "v0")), r"built for operators v0, this iron reads v1\. Upgrade "
        r"iron-odd\.", loads=""),
    "level-99": Odd(lambda f: dist(f, entry_points=POINT.replace("v1", "v99")), r"built for operators v99, this iron reads v1\. Upgrade "
        r"iron-core\.", loads=""),
    "level-none": Odd(lambda f: dist(f, entry_points=POINT.replace(".v1", "")), r"\[iron\.operators\], which is no group this iron reads "
        r"\(did you mean \[iron\.operators\.v1\]\?\)", loads=""),
    "egg-info": Odd(egg),
    # -- names --------------------------------------------------------------------------------------
    "author-of-another-script": Odd(lambda f: dist(f, METADATA=named("iron-odd") + "Author: Łukasz 日本\n")),
    "name-with-spaces": Odd(lambda f: dist(f, METADATA=named("iron odd")), MISSING.replace("iron-odd", "iron odd"), "iron odd 0.2",
        modules={}, loads=""),
    "name-with-dots": Odd(lambda f: dist(f, METADATA=named("iron.odd")), MISSING.replace("iron-odd", "iron.odd"), "iron.odd 0.2",
        modules={}, loads=""),
    "name-of-another-script": Odd(lambda f: dist(f, METADATA=named("iron-ødd")), MISSING.replace("iron-odd", "iron-ødd"), "iron-ødd 0.2",
        modules={}, loads=""),
    "name-with-escapes": Odd(lambda f: dist(f, METADATA=named("iron-\x1b[31modd")), "No module named 'odd_pack'", modules={}, loads="",
        owner="iron-\\x1b[31modd 0.2"),
    "name-without-end": Odd(lambda f: dist(f, METADATA=named("iron-" + "odd" * 999)), "No module named 'odd_pack'", modules={}, loads="",
        owner="iron-oddodd"),
    "entry-with-spaces": Odd(lambda f: dist(f, entry_points=POINT.replace("odd.Op =", "my own op =")), loads="my own op"),
    "entry-with-dots": Odd(lambda f: dist(f, entry_points=POINT.replace("odd.Op =", "a.b..c =")), loads="a.b..c"),
    "entry-of-another-script": Odd(lambda f: dist(f, entry_points=POINT.replace("odd.Op =", "ødd.Op =")), loads="ødd.Op"),
    "version-odd": Odd(lambda f: dist(f, METADATA=named("iron-odd").replace("0.2", "of last week")), "No module named 'odd_pack'",
        "iron-odd of last week", modules={}, loads=""),
}  # fmt: skip


@pytest.fixture
def told(capsys):
    """told(*argv): the status of `iron ARGV...`, what it printed, and its standard error."""

    def run(*argv):
        return (main(list(argv)), *capsys.readouterr())

    return run


@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("ignore::iron_core.errors.PluginWarning")
def test_what_is_installed_wrong_breaks_nothing_else(site, told, case, monkeypatch, tmp_path):
    """Help, lists, doctor and an operator work; doctor says what is wrong and whose it is; its advice, followed, ends that."""
    odd = CASES[case]
    odd.write(site.folder)
    for file, source in odd.modules.items():
        (site.folder / file).write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path / "later"))
    monkeypatch.syspath_prepend(str(site.folder))
    registry.cache_clear()

    assert told("--help")[0] == 0
    for group in ("operators", "plugins", "backends"):
        status, out, _ = told(group, "list", "--json")
        assert status == 0 and len(json.loads(out)) > 2
    status, out, _ = told("operators", "run", "SiLU", "size=8", "--backend", "reference,host", "--json")
    assert status == 0 and [row["failure"] for row in json.loads(out)["rows"]] == ["", ""]
    if odd.loads:
        assert registry().load("operators", odd.loads).__name__ == "Op"

    def complaints():
        status, out, _ = told("doctor", "--json")
        facts = json.loads(out)
        assert out.isascii() or all(part.isprintable() for part in facts["problems"] + facts["notes"])
        assert status == bool(facts["problems"])
        return facts

    facts = complaints()
    other = "notes" if odd.kind == "problems" else "problems"
    assert facts[other] == []
    if not odd.says:
        assert facts["problems"] == []
        return
    assert facts[odd.kind] and all(f"({odd.owner}" in one and re.search(odd.says, one) for one in facts[odd.kind]), facts[odd.kind]
    said = facts[odd.kind][0]
    for advice in ADVICE:
        followed = re.search(advice, said)
        if followed:
            ADVICE[advice](followed, monkeypatch, site)
            registry.cache_clear()
            assert complaints()["problems"] == []
            break
    else:
        assert odd.kind == "notes" or "Upgrade iron-core" in said, f"no advice: {said}"


def hide(found, monkeypatch, site):
    monkeypatch.setenv("IRON_PLUGINS", found[1])


def remove(found, monkeypatch, site):
    """The folder that it names."""
    shutil.rmtree(found[1])


def upgrade(found, monkeypatch, site):
    """To one that was built for this iron."""
    file = site.folder / "iron_odd-0.2.dist-info" / "entry_points.txt"
    file.write_text(file.read_text().replace("v0", "v1"))


ADVICE = {
    r"holds; (\S+) is what an installation left\. Remove that folder\.": remove,
    r"IRON_PLUGINS=(-[^\s).]\S*?)(?:\.$|\)|$)": hide,
    r"Upgrade iron-odd\.": upgrade,
}


def test_of_two_versions_in_one_folder_the_higher_holds(site):
    """Whichever is found first; of which the modules are, nobody knows."""
    two_versions(site.folder)
    dist(site.folder, "iron_odd-0.10rc1.dist-info", METADATA=named("iron-odd").replace("0.2", "0.10rc1"), entry_points=POINT + "b = b:C\n")
    registry.cache_clear()
    assert [(r.name, r.version, r.status) for r in registry().select("operators") if r.distribution == "iron-odd"] == [
        ("odd.Op", "0.10", "not loaded")
    ]
    left = [r for r in registry().select() if r.distribution == "iron-odd" and r.status == "failed"]
    assert sorted(r.version for r in left) == ["0.10rc1", "0.2"]


def test_doctor_lists_what_adds_nothing(site, told):
    """A distribution that needs iron-core, with entry points or without; the name of no other project."""
    for name, needs in (("acme-kernels", "iron-core>=2"), ("acme-tools", "Iron.Core"), ("other", "iron-core-tools"), ("third", "numpy")):
        dist(site.folder, f"{name}-0.3.dist-info", METADATA=named(name) + f"Requires-Dist: {needs}\n", entry_points=None)
    found = json.loads(told("doctor", "--json")[1])["distributions"]
    assert found["acme-kernels"] == found["acme-tools"] == "0.2" and not {"other", "third"} & found.keys()
    assert {"iron-npu", "iron-tuner", "iron-lm"} <= found.keys()


def test_one_of_ours_without_its_entry_points_is_installed(site, told, monkeypatch):
    """As an old or a half removed installation leaves it: doctor lists it with its version, and whoever asks for its backend is told."""
    read = metadata.PathDistribution.read_text

    def without(self, file):
        text = read(self, file)
        return "" if file == "entry_points.txt" and text and "iron_npu" in text else text

    monkeypatch.setattr(metadata.PathDistribution, "read_text", without)
    registry.cache_clear()
    status, out, _ = told("doctor", "--json")
    assert json.loads(out)["distributions"]["iron-npu"] == "2.0.0" and "npu" not in {b["name"] for b in json.loads(out)["backends"]}
    status, _, err = told("doctor", "--npu")
    assert status == 2 and "backend='npu': no installed distribution provides it. `npu` is iron-npu's, which is half installed" in err
    status, _, err = told("image")
    assert status == 2 and "no command `image`. `image` is iron-npu's, which is half installed: install it again." in err
