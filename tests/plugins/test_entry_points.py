"""`entry_points.txt`, line by line: one that is none is a record, and the pack's others hold."""

from __future__ import annotations

import json

import pytest

from iron_core.cli import main
from iron_core.errors import PluginError, PluginWarning, UnknownName, UsageError
from iron_core.plugins import registry as module
from iron_core.plugins.entry_points import scan
from iron_core.plugins.registry import Registry, registry
from tests.distributions import DISTRIBUTIONS

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
    assert (main(["plugins", "list"]), main(["doctor"])) == (0, 1)
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
            ["line 2 of entry_points.txt, 'x = y:Z', is in [iron.operator.v1], which is no group this iron reads (did you mean "
                "[iron.operators.v1]?)"]),
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


@pytest.mark.parametrize(
    ("switch", "says"),
    [
        ("-iron-acne", "IRON_PLUGINS names iron-acne, which is not installed. Did you mean iron-acme?"),
        ("iron-acme,iron-tunner", "IRON_PLUGINS names iron-tunner, which is not installed. Did you mean iron-tuner?"),
        ("-something-else", "IRON_PLUGINS names something-else, which is not installed."),
        ("-NumPy", "IRON_PLUGINS names NumPy, which is installed and adds nothing to Iron."),
    ],
)
def test_a_word_that_does_nothing_is_warned_of(site, monkeypatch, capsys, switch, says):
    """It may be a slip. Doctor has it as a problem."""
    site.add("iron-acme", entries={"iron.operators.v1": {"good.Op": "good_pack:Op"}}, modules={"good_pack.py": OPERATOR})
    monkeypatch.setenv("IRON_PLUGINS", switch)
    registry.cache_clear()
    with pytest.warns(PluginWarning) as warned:
        registry()
    assert [str(one.message) for one in warned] == [says]
    assert main(["doctor", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["problems"] == [says]


@pytest.mark.parametrize("switch", ["", "-iron-acme", "Iron_Acme", "-iron-host,iron-tuner"])
def test_a_word_that_does_something_is_not(site, monkeypatch, recwarn, switch):
    site.add("iron-acme", entries={"iron.operators.v1": {"good.Op": "good_pack:Op"}}, modules={"good_pack.py": OPERATOR})
    monkeypatch.setenv("IRON_PLUGINS", switch)
    registry.cache_clear()
    assert registry().idle == [] and not recwarn.list


# -- groups that are none ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("group", "meant"),
    [
        ("iron.operator.v1", "iron.operators.v1"),
        ("iron.operatosr.v1", "iron.operators.v1"),
        ("iron.lowering.v1", "iron.lowerings.v1"),
        ("iron.operators", "iron.operators.v1"),
        ("iron.operators.1", "iron.operators.v1"),
        ("Iron.Backends.v1", "iron.backends.v1"),
        ("iron_backends.v1", "iron.backends.v1"),
        ("irons.models.v1", "iron.models.v1"),
        ("iron.quantum.v1", ""),
    ],
)
def test_a_group_that_is_none_is_warned_of_once(written, capsys, group, meant, monkeypatch):
    """With the one that may be meant, whose it is, and what hides it; however many lines it has, whatever is done with Iron."""
    with pytest.warns(PluginWarning) as warned:
        written(f"[{group}]\nodd.Op = good_pack:Op\nodd.Op2 = good_pack:Op\n[iron.operators.v1]\n{GOOD}\n")
    hint = f" (did you mean [{meant}]?)" if meant else ""
    said = f"[{group}], which is no group this iron reads{hint}"
    assert [str(one.message) for one in warned] == [
        f"iron-odd 1.0 has {said}: nothing in it is found. Fix it or hide it: IRON_PLUGINS=-iron-odd."
    ]
    assert registry().load("operators", "good.Op").__name__ == "Op"
    assert main(["doctor", "--json"]) == 1
    problems = json.loads(capsys.readouterr().out)["problems"]
    assert len(problems) == 2 and all(said in one and one.endswith("Fix it or hide it: IRON_PLUGINS=-iron-odd.") for one in problems)
    with pytest.raises(UnknownName, match=r"iron-odd 1\.0 failed to load and may be its owner: line 2"):
        registry().load("operators", "odd.Op")
    monkeypatch.setenv("IRON_PLUGINS", "-iron-odd")
    registry.cache_clear()
    assert main(["doctor", "--json"]) == 0


@pytest.mark.parametrize("group", ["console_scripts", "environ.plugins", "ironic.drivers", "pytest11", "iron"])
def test_a_group_of_another_project_is_its_own_affair(written, recwarn, group):
    """Though its name begins alike."""
    assert written(f"[{group}]\nodd.Op = good_pack:Op\n") == [] and not recwarn.list


@pytest.mark.parametrize("one", [one for one in DISTRIBUTIONS if one.name != "iron-core"], ids=lambda one: one.name)
def test_a_name_of_ours_that_is_not_here_is_told_with_its_distribution(one, monkeypatch):
    """Not installed, or without its entry points; backends, commands, models and readers by the names that pyproject.toml gives them."""
    without = Registry([record for record in scan() if record.distribution != one.name])
    for there, state in ((True, "half installed: install it again"), (False, "not installed")):
        monkeypatch.setattr(module, "installed", {one.name: there}.__getitem__)
        for group in ("backends", "commands", "models", "checkpoints"):
            for name in one.offers(group):
                assert f" `{name}` is {one.name}'s, which is {state}." in without.missing(group, name)
                assert registry().absent(group, name) == ""
