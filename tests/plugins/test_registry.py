"""Plugins: names from metadata, code loaded late, one owner a name, failures kept as data."""

from __future__ import annotations

import random
import re
import sys

import pytest

from iron_core.errors import PluginError, UnknownName
from iron_core.plugins import registry as module
from iron_core.plugins.entry_points import scan
from iron_core.plugins.registry import Registry, allowed, registry

OPERATOR = """
from iron_core import In, Operator, Out, Param
class Twice(Operator):
    size: int = Param()
    x = In(size)
    y = Out(size)
    def reference(self, x):
        return x * 2
"""


def one(group, name):
    """The only record of a name."""
    (found,) = [r for r in registry().select(group) if r.name == name]
    return found


def test_names_come_from_metadata(site):
    """A plugin whose code would raise is listed all the same; nothing of it is imported."""
    site.add("iron-acme", "0.1", entries={"iron.operators.v1": {"acme.Twice": "acme_ops:Twice"}}, modules={"acme_ops.py": "1/0"})
    assert "acme.Twice" in registry().names("operators")
    record = one("operators", "acme.Twice")
    assert (record.owner, record.level, record.status) == ("iron-acme 0.1", 1, "not loaded")
    assert "acme_ops" not in sys.modules


def test_a_name_is_loaded_when_asked_for(site):
    """`load` gives the object the entry point names, the same one every time; the group may be given in full."""
    site.add("iron-acme", entries={"iron.operators.v1": {"acme.Twice": "acme_ops:Twice"}}, modules={"acme_ops.py": OPERATOR})
    loaded = registry().load("operators", "acme.Twice")
    assert loaded.__name__ == "Twice"
    assert registry().find("iron.operators.v1", "acme.Twice") is loaded
    assert one("operators", "acme.Twice").status == "ok"


def test_our_own_packs_come_through_the_same_door():
    """Operators, backends, lowerings, the model and the checkpoint readers are entry points like anybody's, and all load."""
    records = registry().select()
    for group in ("operators", "backends", "lowerings", "models", "checkpoints"):
        assert any(r.group == group for r in records), group
    for record in records:
        assert record.load(), f"{record.group} {record.name}: {record.detail}"


def test_find_is_none_for_a_name_nobody_has():
    """`find` asks; `load` insists."""
    assert registry().find("operators", "NoSuchOperator") is None
    with pytest.raises(UnknownName):
        registry().load("operators", "NoSuchOperator")


def test_an_unknown_group_lists_the_groups():
    """A group that does not exist is a mistake, not an empty list."""
    with pytest.raises(UnknownName, match=r"no plugin group 'operator'\. Groups: operators, backends"):
        registry().names("operator")


# -- unknown names -----------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", ["GEMMM", "gemm", "Gemm"])
def test_an_unknown_name_suggests_a_near_one(asked):
    """Suggestions do not mind upper and lower case, and the message names a command that lists the names."""
    with pytest.raises(UnknownName) as caught:
        registry().load("operators", asked)
    assert f"no operator `{asked}`. Did you mean `GEMM`?" in str(caught.value)
    assert "`iron operators list`" in str(caught.value)


def test_without_its_pack_an_operator_of_flm_names_the_distribution(monkeypatch):
    """Everything else is there as before."""
    monkeypatch.setattr(module, "installed", lambda name: False)
    without = Registry([record for record in scan() if record.distribution != "iron-ops-flm"])
    for name in ("flm.DequantBFP", "flm.GEMM"):
        said = f"no operator `{name}`. Names that begin with `flm.` are iron-ops-flm's, which is not installed."
        with pytest.raises(UnknownName, match=re.escape(said)):
            without.load("operators", name)
    assert {name for name in registry().names("operators") if not name.startswith("flm.")} == set(without.names("operators"))
    assert without.load("operators", "GEMM").__module__ == "iron_ops_aie.products.gemm"
    with pytest.raises(UnknownName) as told:
        registry().load("operators", "flm.NoSuch")
    assert "not installed" not in str(told.value)


def test_an_unknown_name_mentions_plugins_that_failed(site):
    """A plugin that failed to load may be the owner of what is missing, so the message says it failed, and how."""
    site.add(
        "iron-acme", "0.3", entries={"iron.operators.v1": {"acme.Twice": "acme_ops:Twice"}}, modules={"acme_ops.py": "import acme_kernels"}
    )
    registry().select(load=True)
    with pytest.raises(UnknownName, match=r"iron-acme 0\.3 failed to load.*ModuleNotFoundError: No module named 'acme_kernels'"):
        registry().load("operators", "acme.Thrice")


def test_the_command_that_a_message_advises_exists(iron_command):
    """Advice is tested: groups with a list of their own, and the others."""
    for group in ("operators", "models", "checkpoints", "lowerings"):
        with pytest.raises(UnknownName) as caught:
            registry().load(group, "no-such-thing")
        command = str(caught.value).split("; `")[1].split("`")[0]
        done = iron_command(*command.split()[1:])
        assert done.returncode == 0 and done.stdout, command


# -- failures ----------------------------------------------------------------------------------------

BROKEN = {
    "raises": ("1/0", "ZeroDivisionError: division by zero"),
    "needs": ("import no_such_module_anywhere", "ModuleNotFoundError: No module named 'no_such_module_anywhere'"),
    "syntax": ("def (", "SyntaxError"),
    "exits": ("raise SystemExit(3)", "SystemExit: 3"),
    "lacks": ("x = 1", "AttributeError: module 'broken' has no attribute 'Op'"),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_plugin_that_fails_to_load_breaks_only_itself(site, how):
    """Whatever its module does, the failure is a record, asking for it says what happened, and other names work."""
    source, why = BROKEN[how]
    site.add("iron-bad", "0.2", entries={"iron.operators.v1": {"bad.Op": "broken:Op"}}, modules={"broken.py": source})
    with pytest.raises(PluginError) as caught:
        registry().load("operators", "bad.Op")
    message = str(caught.value)
    assert "operator `bad.Op` is provided by iron-bad 0.2 (entry point `bad.Op = broken:Op`), which failed to load" in message
    assert why in message
    assert "IRON_PLUGINS=-iron-bad" in message
    record = one("operators", "bad.Op")
    assert record.status == "failed" and why in record.detail and "Traceback" in record.traceback
    assert registry().load("operators", "GEMV").__name__ == "GEMV"


def test_the_switch_that_a_failure_advises_hides_it(site, monkeypatch):
    """`IRON_PLUGINS=-iron-bad`, as the message says, makes it denied; asking for it then says so."""
    site.add("iron-bad", entries={"iron.operators.v1": {"bad.Op": "broken:Op"}}, modules={"broken.py": "1/0"})
    monkeypatch.setenv("IRON_PLUGINS", "-iron-bad")
    registry.cache_clear()
    assert "bad.Op" not in registry().names("operators")
    assert one("operators", "bad.Op").status == "denied"
    with pytest.raises(PluginError, match="is denied: hidden by IRON_PLUGINS=-iron-bad"):
        registry().load("operators", "bad.Op")


def test_debug_lets_the_plugins_own_exception_through(site, monkeypatch):
    """`IRON_PLUGINS_DEBUG=1` is for the plugin's author."""
    site.add("iron-bad", entries={"iron.operators.v1": {"bad.Op": "broken:Op"}}, modules={"broken.py": "1/0"})
    monkeypatch.setenv("IRON_PLUGINS_DEBUG", "1")
    registry.cache_clear()
    with pytest.raises(ZeroDivisionError):
        registry().load("operators", "bad.Op")


@pytest.mark.parametrize("spoilt", ["METADATA", "entry_points.txt", "both"])
def test_broken_metadata_of_another_distribution_breaks_nothing(site, spoilt):
    """Unreadable files of somebody else's installation are passed over."""
    site.add("iron-odd", entries={"iron.operators.v1": {"odd.Op": "odd:Op"}})
    (info,) = site.folder.glob("iron_odd-*.dist-info")
    for file in ("METADATA", "entry_points.txt"):
        if spoilt in (file, "both"):
            (info / file).write_bytes(b"[iron.operators.v1\n\xff\xfe= = =\niron.")
    (site.folder / "empty-1.dist-info").mkdir()
    registry.cache_clear()
    assert registry().load("operators", "GEMV").__name__ == "GEMV"


# -- API levels ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("level", "upgrade"), [(0, "iron-old"), (2, "iron-core")])
def test_another_api_level_is_refused_with_both_numbers(site, level, upgrade):
    """A plugin built for another level is listed, never imported, and told apart by who has to be upgraded."""
    site.add("iron-old", "0.2", entries={f"iron.operators.v{level}": {"old.Conv": "old:Conv"}}, modules={"old.py": "1/0"})
    record = one("operators", "old.Conv")
    assert record.status == "incompatible"
    assert record.detail == f"built for operators v{level}, this iron reads v1. Upgrade {upgrade}."
    with pytest.raises(PluginError, match=f"built for operators v{level}, this iron reads v1"):
        registry().load("operators", "old.Conv")
    assert "old.Conv" not in registry().names("operators")
    assert "old" not in sys.modules


def test_a_name_of_two_levels_is_the_one_this_iron_reads(site):
    """A distribution may offer a name for several levels at once."""
    entries = {"iron.operators.v0": {"acme.Twice": "gone:Twice"}, "iron.operators.v1": {"acme.Twice": "acme_ops:Twice"}}
    site.add("iron-acme", entries=entries, modules={"acme_ops.py": OPERATOR})
    assert registry().load("operators", "acme.Twice").__name__ == "Twice"


# -- one name, one owner -------------------------------------------------------------------------------


@pytest.fixture
def two(site):
    """Two distributions with one name."""
    for number in (1, 2):
        entries = {"iron.operators.v1": {"Twice": f"pack{number}:Twice"}}
        site.add(f"iron-pack{number}", entries=entries, modules={f"pack{number}.py": OPERATOR})
    return site


def test_two_owners_make_a_name_ambiguous(two):
    """Neither wins: both are listed, and using the bare name says who they are and how to choose."""
    found = [r for r in registry().select("operators") if r.name == "Twice"]
    assert [r.status for r in found] == ["ambiguous", "ambiguous"]
    assert found[0].detail == "also provided by iron-pack2 1.0"
    with pytest.raises(PluginError) as caught:
        registry().load("operators", "Twice")
    message = str(caught.value)
    assert "provided by iron-pack1 1.0 and by iron-pack2 1.0" in message
    assert "`iron-pack1:Twice` or `iron-pack2:Twice`" in message


def test_a_qualified_name_chooses_an_owner(two):
    """`distribution:name`, as the message says."""
    for number in (1, 2):
        assert registry().load("operators", f"iron-pack{number}:Twice").__module__ == f"pack{number}"
    assert registry().load("operators", "iron_pack1:Twice").__module__ == "pack1"
    with pytest.raises(UnknownName):
        registry().load("operators", "iron-pack3:Twice")


def test_denying_one_owner_leaves_the_other(two, monkeypatch):
    """The other way out that the message names."""
    monkeypatch.setenv("IRON_PLUGINS", "-iron-pack2")
    registry.cache_clear()
    assert registry().load("operators", "Twice").__module__ == "pack1"


def test_iron_keeps_its_names(site):
    """A third party's GEMV takes nothing away: the name is ours, theirs is reported and reached by its full name."""
    site.add("iron-acme", entries={"iron.operators.v1": {"GEMV": "acme_ops:Twice"}}, modules={"acme_ops.py": OPERATOR})
    assert registry().load("operators", "GEMV").__module__ == "iron_ops_aie.products.gemv"
    assert registry().load("operators", "iron-ops-aie:GEMV").__module__ == "iron_ops_aie.products.gemv"
    assert registry().load("operators", "iron-acme:GEMV").__module__ == "acme_ops"
    theirs, ours = (r for r in registry().select("operators") if r.name == "GEMV")
    assert (ours.status, ours.detail) == ("ok", "")
    assert theirs.status == "shadowed" and theirs.detail == "operator `GEMV` is iron-ops-aie 2.0.0's; this one is `iron-acme:GEMV`"


@pytest.mark.parametrize("name", ["iron-ops-aie", "Iron_Ops.AIE", "iron-core", "iron-tuner", "iron-ops-aie-2"])
def test_irons_names_are_not_had_by_calling_oneself_iron(site, name):
    """A distribution is ours by its name and its package together."""
    site.add(name, "9.0", entries={"iron.operators.v1": {"GEMV": "acme_ops:Twice"}}, modules={"acme_ops.py": OPERATOR})
    assert registry().load("operators", "GEMV").__module__ == "iron_ops_aie.products.gemv"
    assert registry().load("operators", "iron-ops-aie:GEMV").__module__ == "iron_ops_aie.products.gemv"
    (theirs,) = [r for r in registry().select("operators") if r.value == "acme_ops:Twice"]
    assert theirs.status == "shadowed" and not theirs.own
    assert not allowed(name, "", own=theirs.own)


def test_our_distributions_are_those_of_this_repository():
    """The names in the code are the folders' own."""
    import tomllib
    from pathlib import Path

    folders = Path(__file__).parents[2].glob("iron_*/**/pyproject.toml")
    assert {tomllib.loads(f.read_text())["project"]["name"] for f in folders} == module.OWN


def test_a_distribution_seen_twice_on_the_path_is_one_owner(site, tmp_path, monkeypatch):
    """An editable install shadowed by another of the same name is what Python would import: the first."""
    site.add("iron-acme", "0.1", entries={"iron.operators.v1": {"acme.Twice": "acme_ops:Twice"}}, modules={"acme_ops.py": OPERATOR})
    later = type(site)(tmp_path / "later")
    later.add("Iron_Acme", "0.2", entries={"iron.operators.v1": {"acme.Twice": "acme_ops:Twice"}})
    monkeypatch.setattr(sys, "path", [*sys.path, str(later.folder)])
    registry.cache_clear()
    assert one("operators", "acme.Twice").owner == "iron-acme 0.1"


def test_the_order_of_installation_does_not_matter(two):
    """However the path lists distributions, the records are the same."""
    from importlib import metadata

    found = list(metadata.distributions())
    expected = [r.as_dict() for r in Registry(scan(found)).records]
    for seed in range(3):
        shuffled = random.Random(seed).sample(found, len(found))
        assert [r.as_dict() for r in Registry(scan(shuffled)).records] == expected


# -- switches ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("switch", "iron_acme", "other", "own"),
    [
        (None, True, True, True),
        ("", False, False, True),
        ("iron-acme", True, False, True),
        ("Iron_Acme", True, False, True),
        ("-iron-acme", False, True, True),
        ("iron-acme,-iron-acme", False, False, True),
        ("-iron-host", True, True, False),
    ],
)
def test_the_switch_allows_and_denies(switch, iron_acme, other, own):
    """Unset: all. Empty: Iron's own alone. Names: these and Iron's own. -name: all but it, Iron's own included."""
    assert allowed("iron-acme", switch) is iron_acme
    assert allowed("other-pack", switch) is other
    assert allowed("iron-host", switch) is own


def test_scanning_imports_nothing():
    """Reading every distribution's entry points imports none of the modules they name."""
    before = set(sys.modules)
    records = scan()
    assert records and not {r.value.partition(":")[0] for r in records} & (set(sys.modules) - before)


def test_groups_are_the_ones_of_the_design():
    """Each group this iron reads, with its level."""
    groups = ["operators", "backends", "lowerings", "models", "checkpoints", "tokenizers", "devices", "formats", "commands"]
    assert module.LEVELS == dict.fromkeys([*groups, "tuners", "plugins"], 1)
