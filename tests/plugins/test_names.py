"""One name, one owner: Iron keeps its names, and what another distribution calls the same is `distribution:name` everywhere."""

from __future__ import annotations

import json

import numpy as np
import pytest

import iron_core as iron
from iron_core.backends import choose
from iron_core.cli import main
from iron_core.devices import device
from iron_core.errors import BackendUnavailable, PluginError, UnknownName
from iron_core.lowering import lowering_for
from iron_core.plugins.registry import registry
from iron_ops_aie import SiLU

PACK = """
from iron_core import Lowering, UnaryElementwise, Case, Testing
from iron_core.backends.reference import ReferenceBackend
from iron_core.devices import DEVICES
import attrs
class SiLU(UnaryElementwise):
    "Nothing like it."
    test = Testing(Case(size=8))
    def reference(self, x): return x * 0
class Host(ReferenceBackend):
    name, preference = "host", 1
class Lower(Lowering):
    backend, operator = "host", "iron_ops_aie.SiLU"
class Llama:
    summary = "Not ours."
    @staticmethod
    def main(argv):
        print("theirs", *argv)
def command(argv):
    print("their command", *argv)
def npu2():
    return attrs.evolve(DEVICES["npu2"], columns=3)
"""
ENTRIES = {
    "iron.operators.v1": {"SiLU": "taker:SiLU"},
    "iron.backends.v1": {"host": "taker:Host"},
    "iron.lowerings.v1": {"host.iron_ops_aie.SiLU": "taker:Lower"},
    "iron.models.v1": {"llama": "taker:Llama"},
    "iron.commands.v1": {"sim": "taker:command", "doctor": "taker:command"},
    "iron.devices.v1": {"npu2": "taker:npu2"},
}


@pytest.fixture
def taker(site):
    """A pack whose names are all ours, and whose code works."""
    site.add("iron-taker", "0.3", entries=ENTRIES, modules={"taker.py": PACK})
    return site


@pytest.fixture
def told(capsys):
    """told(*argv): (status, standard output, standard error) of `iron ARGV...`."""

    def run(*argv):
        status = main(list(argv))
        return (status, *capsys.readouterr())

    return run


def test_the_bare_names_are_ours(taker):
    """In every group."""
    assert registry().load("operators", "SiLU") is SiLU
    assert type(choose.get("host")).__module__ == "iron_host.backend"
    assert type(lowering_for("host", SiLU(size=8))).__module__ == "iron_host.lowerings.elementwise"
    assert registry().load("models", "llama").__module__ == "iron_llama.model"
    assert device("npu2").columns == 8
    assert choose.choose().backend is choose.get("host")


def test_the_full_names_are_theirs(taker, told, monkeypatch):
    """Wherever a name is taken: from Python, on the command line, in the environment."""
    theirs = choose.get("iron-taker:host")
    assert type(theirs).__module__ == "taker" and theirs is not choose.get("host")
    assert registry().load("lowerings", "iron-taker:host.iron_ops_aie.SiLU").__module__ == "taker"
    assert device("iron-taker:npu2").columns == 3
    assert told("run", "iron-taker:llama", "word")[1] == "theirs word\n"
    assert told("iron-taker:sim", "word")[1] == told("iron-taker:doctor", "word")[1] == "their command word\n"
    assert "Nothing like it." in told("operators", "show", "iron-taker:SiLU")[1]
    _, out, err = told("operators", "run", "iron-taker:SiLU", "size=8", "--backend", "iron-taker:host,reference", "--json")
    assert [row["backend"] for row in json.loads(out)["rows"]] == ["host", "reference"], err
    monkeypatch.setenv("IRON_BACKEND", "iron-taker:host")
    assert choose.choose().backend is theirs

    class One(iron.Graph):
        def body(self, x):
            return SiLU(x)

    compiled = One().compile(x=((8,), np.float32))
    assert compiled.backend is theirs and "IRON_BACKEND=iron-taker:host" in compiled.explain()


def test_lists_show_both(taker, told):
    """Each with its state, and how the other one is reached."""
    rows = {(e["group"], e["name"], e["distribution"]): e for e in json.loads(told("plugins", "list", "--load", "--json")[1])}
    assert rows["backends", "host", "iron-host"]["status"] == "ok"
    assert rows["backends", "host", "iron-taker"]["status"] == "shadowed"
    assert rows["backends", "host", "iron-taker"]["detail"].endswith("this one is `iron-taker:host`")
    told_of = told("--help")[1]
    assert "cases on simulated NPU arrays.\n" in told_of and "iron-taker" not in told_of


def test_the_lowering_of_an_operator_is_its_packs_own(site):
    """Of two distributions that lower one operator: the operator's pack, else the backend's, else neither."""
    source = "from iron_core import Lowering\nclass L(Lowering): pass\n"
    name = "host.acme_ops.Twice"
    for pack in ("acme_ops", "other"):
        site.add(f"x-{pack}", entries={"iron.lowerings.v1": {name: f"{pack}:L"}}, modules={f"{pack}.py": source})
    assert registry().load("lowerings", name).__module__ == "acme_ops"
    assert registry().load("lowerings", f"x-other:{name}").__module__ == "other"
    for pack in ("one", "two"):
        entries = {
            "iron.lowerings.v1": {"fast.some_ops.Op": f"{pack}:L"},
            "iron.backends.v1": {"fast" if pack == "two" else "slow": "one:L"},
        }
        site.add(f"x-{pack}", entries=entries, modules={f"{pack}.py": source})
    registry.cache_clear()
    assert registry().load("lowerings", "fast.some_ops.Op").__module__ == "two"


def test_no_advice_hides_what_is_ours(taker, told):
    """Whatever is wrong, with the line, with theirs or with ours."""
    for argv in (["plugins", "list"], ["doctor"], ["operators", "run", "SiLUX"], ["run", "lama"]):
        out = "".join(map(str, told(*argv)))
        assert not any(f"-{name}" in out.partition("IRON_PLUGINS=")[2] for name in ("iron-host", "iron-ops-aie", "iron-llama"))
    (ours,) = [r for r in registry().select("backends") if r.name == "sim"]
    ours.fail("it is gone")
    with pytest.raises(PluginError, match=r"failed to load: it is gone\. Install it again\.\Z"):
        registry().load("backends", "sim")


def test_hiding_ours_gives_the_name_to_the_other(taker, monkeypatch):
    """The switch is the user's word."""
    monkeypatch.setenv("IRON_PLUGINS", "-iron-ops-aie")
    registry.cache_clear()
    assert registry().load("operators", "SiLU").__module__ == "taker"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("    def probe(self): raise SystemExit(1)", "its probe failed WHOSE: SystemExit: 1"),
        (
            "    def probe(self): return True",
            "its probe gave True (bool) WHOSE; legal: Available(summary) or Unavailable(reason, fix)",
        ),
        ("    def devices(self): return ()", "its devices() gave an object of class `tuple` WHOSE"),
        ("    compile = None", "it has no compile() WHOSE"),
    ],
    ids=["probe-exits", "probe-bool", "no-device", "no-compile"],
)
def test_a_backend_that_breaks_the_protocol_cannot_run_here(site, told, body, says):
    """Asked for by name it is refused in those words; otherwise it is a reason in the choice, and a row of the list."""
    says = says.replace("WHOSE", "(iron-fast 1.0, entry point `fast = fast_pack:Fast`)")
    source = "from iron_core.backends.null import NullBackend\nclass Fast(NullBackend):\n    name, preference = 'fast', 0\n" + body + "\n"
    site.add("iron-fast", entries={"iron.backends.v1": {"fast": "fast_pack:Fast"}}, modules={"fast_pack.py": source})
    with pytest.raises(BackendUnavailable) as caught:
        choose.choose("fast")
    assert str(caught.value).startswith(f"backend fast cannot run here: {says}")
    rows = {row["name"]: row for row in json.loads(told("backends", "list", "--json")[1])}
    assert rows["fast"]["reason"].startswith(says) and rows["host"]["available"]
    assert choose.choose().backend.name == "host"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("name, preference = 'host', 0", "its name is 'host' (str); legal: 'fast', its entry point's"),
        ("name, preference = 'fast', 'first'", "its preference is 'first' (str); legal: an int, or None"),
        ("def __init__(self): 1/0", "cannot be made: ZeroDivisionError: division by zero"),
    ],
)
def test_a_backend_is_what_its_entry_point_says(site, line, says):
    """Lowerings and cache entries are found by a backend's name, so it has no other."""
    source = f"from iron_core.backends.null import NullBackend\nclass Fast(NullBackend):\n    {line}\n"
    site.add("iron-fast", entries={"iron.backends.v1": {"fast": "fast_pack:Fast"}}, modules={"fast_pack.py": source})
    with pytest.raises(PluginError) as caught:
        choose.get("fast")
    whose = "backend `fast` of iron-fast 1.0 (entry point `fast = fast_pack:Fast`)"
    assert str(caught.value) == f"{whose}{':' if 'its' in says else ''} {says}."
    assert choose.choose().backend.name == "host"


@pytest.mark.parametrize("source", ["def It(): return 42", "def It(): raise SystemExit", "def It(): return None"])
def test_a_device_that_is_none_is_refused_when_it_is_asked_for(site, source):
    """With whose it is."""
    site.add("iron-odd", entries={"iron.devices.v1": {"odd1": "odd_pack:It"}}, modules={"odd_pack.py": source})
    with pytest.raises(PluginError, match=r"dev='odd1': .*iron-odd 1\.0"):
        device("odd1")
    with pytest.raises(UnknownName):
        device("odd2")
