"""Devices of packs: graphs run for one on the simulator, in the reference and in plans; and it is listed where devices are."""

from __future__ import annotations

import json
import sys
from typing import Any

import attrs
import numpy as np
import pytest

import iron_core as iron
from iron_core import OperatorImage
from iron_core.backends import choose
from iron_core.cli import main
from iron_core.devices import DEVICES, device, using_device
from iron_core.errors import CallError, PluginError, UnsupportedError
from iron_core.plugins.registry import registry
from iron_ops_aie import GEMM, GEMV, ElementwiseAdd

F32 = np.float32

#: An array of two columns, one of a family of its own that nobody has timed, something without an array, and a name of Iron's.
PACK = """
import attrs
from iron_core.devices import DEVICES, Device

def pair():
    return attrs.evolve(DEVICES["npu2"], name="acme1", columns=2, contexts=1)

ODD = attrs.evolve(DEVICES["npu1"], name="acme-odd", family="acme", columns=3, clock_mhz=500)
DSP = Device("acme-dsp", "dsp", "v60", columns=0)
OURS = attrs.evolve(DEVICES["npu2"], columns=3)
HALF = Device("acme-half", "acme", "AIE2", columns=2)
CALLED = attrs.evolve(ODD, name="other")
"""
ENTRIES = {"acme1": "acme_devices:pair", "acme-odd": "acme_devices:ODD", "acme-dsp": "acme_devices:DSP", "npu2": "acme_devices:OURS"}


@pytest.fixture
def acme(site):
    """A pack of four devices."""
    site.add("iron-acme", entries={"iron.devices.v1": ENTRIES}, modules={"acme_devices.py": PACK})
    registry.cache_clear()
    return site


class Sum(iron.Graph):
    """Two products and their sum: three steps, so there is a plan to speak of."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.a, self.b = (iron.weight((rng.standard_normal((128, 64)) / 8).astype(iron.bfloat16)) for _ in "ab")

    def body(self, x: Any) -> Any:
        return ElementwiseAdd(GEMV(self.a, x), GEMV(self.b, x))


@pytest.mark.parametrize("name", ("acme1", "acme-odd", "iron-acme:npu2"))
def test_a_graph_runs_for_it_on_the_simulator(acme, name):
    """As wide as the array is, and no wider; what it computes is what the reference does."""
    graph, x = Sum(), (np.arange(64) / 64).astype(iron.bfloat16)
    compiled = graph.compile(x=(64,), dev=name, backend="sim")
    assert compiled.dev == device(name).name == name
    assert iron.allclose(compiled(x), graph.reference(x))
    steps = next(iter(compiled.versions.values())).image.steps
    assert {step.design.array.dev for step in steps} == {name}
    assert all(0 < len(step.design.array.cores) <= device(name).cores for step in steps)


@pytest.mark.parametrize("name", ("acme1", "acme-odd", "acme-dsp", "iron-acme:npu2"))
def test_the_reference_and_null_take_any(acme, name):
    """The one computes, the other plans, and both say for what."""
    x = np.ones(64, iron.bfloat16)
    compiled = Sum().compile(x=(64,), dev=name, backend="reference")
    assert compiled(x).shape == (128,) and f"on reference for {name}" in compiled.explain()
    planned = Sum().compile(x=(64,), dev=name, backend="null")
    assert planned.dev == name and f"on null for {name}" in planned.explain()


def test_an_operator_is_laid_out_for_its_columns(acme):
    """Its tunables follow the device's numbers, not those of its family's namesake."""
    made = {name: OperatorImage(GEMM(M=256, K=64, N=256), backend="sim", dev=name) for name in ("acme1", "npu2")}
    cores = {name: len(one.image.steps[0].design.array.cores) for name, one in made.items()}
    assert cores["acme1"] == 2 * 4 < cores["npu2"]


def test_what_the_array_does_not_take_is_refused_by_rule(acme):
    """As for Iron's own devices; and a device without an array is none to simulate."""
    with pytest.raises(UnsupportedError, match=r"GEMV .* on acme1: "):
        OperatorImage(GEMV(M=8, K=7), backend="sim", dev="acme1")
    with pytest.raises(UnsupportedError, match=r"dev='acme-dsp': backend sim takes npu2, npu1, .*, acme-odd, acme1\."):
        Sum().compile(x=(64,), dev="acme-dsp", backend="sim")
    with pytest.raises(UnsupportedError, match=r"dev='acme1': backend host takes host\."):
        Sum().compile(x=(64,), dev="acme1", backend="host")


def test_its_time_is_of_its_familys_hardware(acme):
    """A family that nobody has measured is simulated, and has no clock."""
    from iron_sim.timing.hardware import hardware

    assert hardware("acme1").family == "npu2"
    with pytest.raises(UnsupportedError, match=r"dev=acme-odd: its hardware's timing is not known\. Legal: .* families npu1, npu2\."):
        hardware("acme-odd")


def test_it_may_be_the_current_device(acme):
    """And be given as an object; another one of its name is not it."""
    with using_device("acme1"):
        assert Sum().compile(x=(64,), backend="sim").dev == "acme1"
    assert Sum().compile(x=(64,), dev=device("acme1"), backend="sim").dev == "acme1"
    for odd in (attrs.evolve(device("acme1"), columns=1), attrs.evolve(DEVICES["npu2"], columns=3)):
        with pytest.raises(CallError, match=r"dev='\w+' is another device by that name\. Legal: one that is registered in iron\."):
            Sum().compile(x=(64,), dev=odd, backend="sim")


def test_it_is_listed_where_devices_are(acme, capsys):
    """`iron devices list`, `iron doctor`, `iron backends list --json`, and the message about one that is not there."""

    def said(*argv: str) -> str:
        main([*argv])
        return capsys.readouterr().out

    rows = {row["name"]: row for row in json.loads(said("devices", "list", "--json"))}
    assert set(rows) == {*DEVICES, "acme1", "acme-odd", "acme-dsp", "iron-acme:npu2"}
    assert rows["acme1"] == {
        **dict(name="acme1", family="npu2", arch="AIE2P", columns=2, core_rows=4, distribution="iron-acme 1.0", reason=""),
        "backends": ["sim", "reference", "null"],
    }
    assert rows["npu2"]["distribution"] == "iron-core" and rows["iron-acme:npu2"]["columns"] == 3
    assert rows["acme-dsp"]["backends"] == ["reference", "null"] and "host" in rows["host"]["backends"]
    table = said("devices", "list")
    assert next(line for line in table.splitlines() if line.startswith("acme1")).split() == [
        *("acme1", "npu2", "2", "x", "4", "iron-acme", "1.0", "sim,", "reference,", "null")
    ]
    assert {"acme1", "acme-odd", "acme-dsp"} <= set(json.loads(said("doctor", "--json"))["devices"])
    takes = {row["name"]: row["devices"] for row in json.loads(said("backends", "list", "--json"))}
    assert {"acme1", "acme-odd"} <= set(takes["sim"]) and "acme-dsp" not in takes["sim"] and "acme-dsp" in takes["null"]
    assert takes["host"] == ["host"]


def test_nothing_imports_it_that_does_not_ask_for_it(acme):
    """A graph for another device, its backend's devices among them."""
    assert choose.get("sim").devices() and Sum().compile(x=(64,), dev="npu2", backend="sim").dev == "npu2"
    assert "acme_devices" not in sys.modules


def test_the_command_line_takes_its_name(acme, iron_command):
    """As it takes ours."""
    done = iron_command("operators", "run", "SiLU", "size=4096", "--backend", "reference,sim", "--dev", "acme1", "--json")
    assert done.returncode == 0, done.stderr
    assert {row["device"] for row in json.loads(done.stdout)["rows"]} == {"acme1"}


@pytest.mark.parametrize(
    ("value", "name", "says"),
    [
        ("CALLED", "acme1", r"calls itself 'other'; both names have to be one"),
        ("HALF", "acme-half", r"has columns and no core_rows, program_memory, core, memtile, shim, stream_bytes, clock_mhz"),
    ],
)
def test_what_is_no_device_is_refused_with_whose_it_is(site, capsys, value, name, says):
    """When it is asked for; the list shows it with the reason, and the rest."""
    site.add("iron-acme", entries={"iron.devices.v1": {name: f"acme_devices:{value}"}}, modules={"acme_devices.py": PACK})
    registry.cache_clear()
    with pytest.raises(PluginError, match=rf"dev='{name}': the device of iron-acme 1\.0.*{says}"):
        device(name)
    assert main(["devices", "list", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert "iron-acme" in rows[name]["reason"] and rows["npu1"]["reason"] == ""


def test_a_plan_kept_for_it_is_of_its_numbers(acme, tmp_path, monkeypatch):
    """A pack that says later that its device is another finds none of the plans made for the first."""
    traced: list[int] = []
    trace = iron.Graph.trace
    monkeypatch.setattr(iron.Graph, "trace", lambda self, **shapes: traced.append(1) or trace(self, **shapes))

    def start() -> int:
        traced.clear()
        Sum().compile(x=(64,), dev="acme-odd", backend="null", cache_key=str(tmp_path))
        return len(traced)

    assert [start(), start()] == [1, 0]
    # Longer, so that bytecode of the first is not taken for its own.
    (acme.folder / "acme_devices.py").write_text(PACK.replace("columns=3, clock", "columns=1,  clock"))
    del sys.modules["acme_devices"]
    registry.cache_clear()
    assert device("acme-odd").columns == 1 and [start(), start()] == [1, 0]
