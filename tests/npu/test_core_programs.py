"""An operator at two extents is one array: the same text, the same objects, and where aiecc is at hand the same cores' ELFs."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import pytest

from iron_core.array import build as building
from iron_core.declare.cases import cases
from iron_core.declare.identity import array_key, design_key
from iron_core.devices import device
from iron_core.errors import IronError
from iron_npu.image.image import Entry, Module
from iron_npu.mlir.printer import Printed, print_design
from iron_npu.settings import Settings
from iron_npu.tools.build import build
from iron_npu.tools.command import FILES
from iron_npu.tools.programs import AIECC, CLANG, XCLBINUTIL, Missing, find
from iron_npu.tools.request import ELF, XCLBIN, Request
from tests.catalog import PLACES, named
from tests.npu.vendor import Vendor

#: What a field may become, of its value: twice, three times, half, and more of it.
OTHERS = (lambda n: 2 * n, lambda n: 3 * n, lambda n: n // 2, lambda n: n + 16, lambda n: n + 64)
#: Of which no second extent is found: Emit computes words, one row each, and its rows are its cores' own.
ONE_EXTENT = {"Emit"}


def made(cls: Any, fields: Any, dev: str) -> Any:
    """A resolved operator that some array takes, or None."""
    try:
        op = cls(**fields).resolved(device(dev))
        building.build(op, dev)
    except (IronError, TypeError, ValueError):
        return None
    return op


@cache
def two(cls: Any, dev: str) -> tuple[Any, Any] | None:
    """An operator, and the same with one number of its shape another and all tunables as they were: two designs on one array."""
    for _, case, _ in cases([cls], [dev], bench=False):
        op = None if case.bounds else made(cls, case.fields, dev)
        if op is None:
            continue
        tunables = {name: getattr(op, name) for name in op.autos() if getattr(op, name) is not None}
        for name, value in case.fields.items():
            for another in (other(value) for other in OTHERS if type(value) is int):
                for kept in (tunables, {}):  # some are derived, and not to be given
                    found = made(cls, {**kept, **case.fields, name: another}, dev) if another > 0 else None
                    if found is not None and array_key(found) == array_key(op) and design_key(found) != design_key(op):
                        return op, found
    return None


def printed(op: Any, dev: str, monkeypatch: pytest.MonkeyPatch) -> Printed:
    """Of an array that is recorded anew: none that was built before is found."""
    monkeypatch.setattr(building, "_arrays", {})
    monkeypatch.setattr(building, "_designs", {})
    return print_design(building.build(op, dev).design)


def array_text(text: str) -> str:
    """All of a device but its sequence."""
    found = re.search(r"aie\.device.*?(?=\n    aie\.runtime_sequence)", text, re.S)
    assert found is not None and "aie.objectfifo" in found[0]
    return found[0]


@pytest.mark.parametrize(("cls", "dev"), PLACES, ids=named)
def test_the_array_is_the_same_text_at_two_extents(cls, dev, monkeypatch):
    found = two(cls, dev)
    if cls.__name__ in ONE_EXTENT:
        assert found is None, "it has another extent: take it out of ONE_EXTENT"
        return
    assert found is not None
    one, other = (printed(op, dev, monkeypatch) for op in found)
    assert array_text(one.text) == array_text(other.text)
    assert one.objects == other.objects
    assert one.text != other.text, "else one sequence serves both, and nothing was compared"


# -- with the vendor's tools ---------------------------------------------------------------------------


def core_elves(printed: Printed, dev: str, settings: Settings, folder: Path) -> dict[str, bytes]:
    """By the name that aiecc gives a core: its ELF, of a build that nothing is kept of but in `folder`."""
    full = device(dev).full_elf
    module = Module("Design", printed.text, printed.objects, "main", ("sequence",), printed.dynamic)
    entry = Entry(0, "main:sequence") if full else Entry(0, "Design", 0x901, "Designi")
    alone = attrs.evolve(settings, keep=folder / "kept", cache_home=folder / "cache")
    build([Request("Design", dev, ELF if full else XCLBIN, ((module, entry),))], alone)
    return {path.name: path.read_bytes() for path in sorted((folder / "kept").rglob("*.elf")) if path.name != FILES["elf"]}


def missing(dev: str) -> str:
    """Which programs are not here."""
    names = (AIECC, CLANG) if device(dev).full_elf else (AIECC, CLANG, XCLBINUTIL)
    looked = [find(name, Settings.read()) for name in names]
    return "; ".join(one.reason for one in looked if isinstance(one, Missing))


@pytest.mark.toolchain
@pytest.mark.parametrize(("cls", "dev"), PLACES, ids=named)
def test_the_cores_are_the_same_bytes_at_two_extents(cls, dev, monkeypatch, tmp_path):
    found = two(cls, dev)
    if missing(dev):
        pytest.skip(missing(dev))
    if found is None:
        pytest.skip(f"{cls.__name__} has one extent")
    texts = [printed(op, dev, monkeypatch) for op in found]
    one, other = (core_elves(text, dev, Settings.read(), tmp_path / str(number)) for number, text in enumerate(texts))
    assert one == other and bool(one) == ("aie.core" in texts[0].text)


def test_cores_that_differ_are_seen(monkeypatch, tmp_path):
    """With programs that stand in, of which one gives a core's ELF."""
    vendor = Vendor.install(tmp_path / "tools", tmp_path / "cache")
    cls = next(cls for cls, _ in PLACES if cls.__name__ == "SoftCap")  # its kernel is its own
    for dev in ("npu1", "npu2"):
        one, other = (printed(op, dev, monkeypatch) for op in two(cls, dev))
        first = core_elves(one, dev, vendor.settings, tmp_path / dev / "one")
        assert len(first) == 1 and first == core_elves(other, dev, vendor.settings, tmp_path / dev / "other")
        text = (vendor.folder / "core-elf").read_text()
        (vendor.folder / "core-elf").write_text(text + "00")
        assert first != core_elves(other, dev, vendor.settings, tmp_path / dev / "changed")
        (vendor.folder / "core-elf").write_text(text)
