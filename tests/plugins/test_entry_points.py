"""`entry_points.txt`, line by line: one that is none is a record, and the pack's others hold."""

from __future__ import annotations

import json

import pytest

from iron_core.cli import main
from iron_core.errors import PluginError, UnknownName, UsageError
from iron_core.plugins.registry import registry

OPERATOR = "from iron_core import UnaryElementwise\nclass Op(UnaryElementwise):\n    def reference(self, x): return x\n"
GOOD = "good.Op = good_pack:Op"


@pytest.fixture
def written(site):
    """written(text, metadata): a distribution iron-odd 1.0 with this entry_points.txt; its records."""

    def write(text, metadata="Metadata-Version: 2.1\nName: iron-odd\nVersion: 1.0\n"):
        site.add("iron-odd", modules={"good_pack.py": OPERATOR})
        (info,) = site.folder.glob("iron_odd-*.dist-info")
        (info / "entry_points.txt").write_bytes(text if isinstance(text, bytes) else text.encode())
        (info / "METADATA").unlink()
        if metadata is not None:
            (info / "METADATA").write_text(metadata)
        registry.cache_clear()
        return [r for r in registry().select() if r.distribution.replace("_", "-") == "iron-odd"]

    return write


LINES = {
    "no-equals": ("this is not valid", 3, "this is not valid"),
    "only-equals": ("=", 3, "line 3"),
    "no-name": ("= good_pack:Op", 3, "line 3"),
    "colon-for-equals": ("odd.Op: good_pack:Op", 3, "odd.Op: good_pack:Op"),
    "name-with-colon": ("iron-x:Op = good_pack:Op", 3, "iron-x:Op"),
    "no-module": ("odd.Op = :Op", 3, "odd.Op"),
    "two-words": ("odd.Op = good pack", 3, "odd.Op"),
    "remark-behind": ("odd.Op = good_pack:Op  # the operator", 3, "odd.Op"),
    "no-value": ("odd.Op =", 3, "odd.Op"),
    "control": ("odd\x1b[31m = good_pack:Op", 3, "odd\\x1b[31m"),
    "again": ("good.Op = good_pack:Another", 3, "good.Op (line 3)"),
}


@pytest.mark.parametrize("case", LINES)
def test_a_malformed_line_is_a_record(written, case, capsys):
    """It says which line of whose file, and what it should be; the other lines work; list, doctor and errors tell of it."""
    line, number, name = LINES[case]
    (bad,) = [r for r in written(f"[iron.operators.v1]\n{GOOD}\n{line}\nlast.Op = good_pack:Op\n") if r.status == "failed"]
    assert (bad.group, bad.name, bad.owner) == ("operators", name, "iron-odd 1.0")
    assert bad.detail.startswith(f"line {number} of entry_points.txt, ") and bad.detail.isprintable()
    assert bad.detail.endswith("; its other entry points hold")
    for good in ("good.Op", "last.Op"):
        assert registry().load("operators", good).__name__ == "Op"
    assert main(["plugins", "list"]) == main(["doctor"]) == 0
    told = capsys.readouterr().out
    assert told.count(bad.detail) == 2 and "\x1b" not in told
    with pytest.raises(UnknownName, match=r"iron-odd 1\.0 failed to load and may be its owner: line 3"):
        registry().load("operators", "missing.Op")


def test_the_name_of_a_malformed_line_is_known(written):
    """Asking for it says what is wrong with it."""
    written(f"[iron.operators.v1]\n{GOOD}\nodd.Op = good pack\n")
    with pytest.raises(PluginError, match=r"operator `odd\.Op` is provided by iron-odd 1\.0, which is failed: line 3 of entry_points\.txt"):
        registry().load("operators", "odd.Op")


@pytest.mark.parametrize(
    ("text", "bad"),
    [
        (f"good.Op = early:Op\n[iron.operators.v1]\n{GOOD}\n",
            ["line 1 of entry_points.txt, 'good.Op = early:Op', stands before any [group]"]),
        (f"[iron.operators.v1]\n{GOOD}\n[iron.operators.v1\nlost.Op = good_pack:Op\n",
            ["line 3 of entry_points.txt, '[iron.operators.v1', is no [group]"]),
        (f"[iron.operator.v1]\nx = y:Z\n[iron.operators.v1]\n{GOOD}\n",
            ["line 2 of entry_points.txt, 'x = y:Z', is in [iron.operator.v1], which is no group this iron reads"]),
        (f"[console_scripts]\nthis is not valid\n[iron.operators.v1]\n{GOOD}\n", []),
        (f"[iron.operators.v1]\n{GOOD}\n[other]\na = b:c\n[iron.operators.v1]\nmore.Op = good_pack:Op\n", []),
        (f"[iron.operators.v1]\n{GOOD}\n{GOOD}\n", []),
        (f"\ufeff[iron.operators.v1]\r\n# a remark\r\n\r\n   {GOOD}   \r\n", []),
        ("\ufeff" + f"[iron.operators.v1]\n{GOOD}\n".encode("utf-16-le").decode("latin-1"), None),
        (b"[iron.operators.v1]\n" + GOOD.encode() + b"\n\xff\xfe = x:y\n", None),
        ("[iron.operators.v1]\n" + GOOD + "\nüber.Op = good_pack:Op\n", []),
    ],
    ids=["before-a-group", "open-bracket", "unknown-group", "not-irons", "group-twice", "line-twice", "bom", "garbage", "no-utf8",
        "unicode"],
)
def test_odd_files_are_read_as_far_as_they_can_be(written, text, bad):
    """Whatever else stands in it, a line that is right works."""
    if bad is None and isinstance(text, str):
        text = b"\xff\xfe" + f"[iron.operators.v1]\n{GOOD}\n".encode("utf-16-le")
    records = written(text)
    assert registry().load("operators", "good.Op").__name__ == "Op"
    failed = [r.detail for r in records if r.status == "failed"]
    assert [d.partition(";")[0] for d in failed] == bad if bad is not None else all(d.isprintable() for d in failed)


@pytest.mark.parametrize("metadata", [None, "", "Metadata-Version: 2.1\n", "Version: 1.0\n\nName: late\n"])
def test_a_pack_without_a_name_is_called_after_its_folder(written, metadata):
    """METADATA that is missing, empty or without a name is told of, and the entry points work."""
    records = written(f"[iron.operators.v1]\n{GOOD}\n", metadata)
    assert registry().load("operators", "good.Op").__name__ == "Op"
    (fault,) = [r for r in records if r.status == "failed"]
    assert (fault.name, fault.owner) == ("METADATA", "iron_odd 1.0") and "METADATA" in fault.detail
    assert registry().load("operators", "iron-odd:good.Op").__name__ == "Op"


def test_hiding_a_distribution_hides_its_malformed_lines(written, monkeypatch, capsys):
    """Advice that is followed ends the complaint."""
    written(f"[iron.operators.v1]\n{GOOD}\nodd\n")
    monkeypatch.setenv("IRON_PLUGINS", "-iron-odd")
    registry.cache_clear()
    assert main(["doctor", "--json"]) == 0
    assert not [p for p in json.loads(capsys.readouterr().out)["problems"] if "iron-odd" in p]


# -- IRON_PLUGINS --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "switch", ["-", "--iron-acme", "iron acme", "iron-acme;iron-b", "+iron-acme", "iron-acme==1.0", "iron-acme,-", "iron-*", "\x1b[31m"]
)
def test_a_switch_that_names_no_distribution_is_refused(monkeypatch, capsys, switch):
    """One line: the word, and what would be legal; exit status 2."""
    monkeypatch.setenv("IRON_PLUGINS", switch)
    registry.cache_clear()
    with pytest.raises(UsageError, match=r"is no distribution's name\. Legal: names separated by commas"):
        registry()
    assert main(["plugins", "list"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: IRON_PLUGINS=") and err.count("\n") == 1 and err[:-1].isprintable()
    assert main(["--help"]) == 0 and "plugins" in capsys.readouterr().out
    monkeypatch.delenv("IRON_PLUGINS")
    registry.cache_clear()


def test_doctor_knows_a_switch_that_does_nothing(monkeypatch, capsys):
    """A name that is not installed may be a slip."""
    monkeypatch.setenv("IRON_PLUGINS", "-iron-acne")
    registry.cache_clear()
    assert main(["doctor", "--json"]) == 0
    assert "IRON_PLUGINS names iron-acne, which is not installed or adds nothing" in json.loads(capsys.readouterr().out)["problems"]
    monkeypatch.delenv("IRON_PLUGINS")
    registry.cache_clear()
