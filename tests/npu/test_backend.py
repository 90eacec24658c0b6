"""The backend as core meets it: found by its entry point, cheap to ask, and left out silently where there is no NPU."""

from __future__ import annotations

import importlib
import os
import pickle
import sys

import pytest

from iron_core.backends import choose
from iron_core.backends.arrays import array_devices
from iron_core.backends.protocol import Available, Examining, Unavailable
from iron_core.errors import BackendUnavailable
from iron_npu.backend import NpuBackend
from iron_npu.machine import machine
from iron_npu.machine.system import System
from iron_ops_aie import SiLU
from tests.fresh import modules_after


def test_its_entry_point_is_it():
    assert type(choose.get("npu")) is NpuBackend and choose.get("npu").preference == 0
    assert isinstance(NpuBackend(), Examining) and pickle.loads(pickle.dumps(NpuBackend(depth=3))) == NpuBackend(depth=3)


def test_a_machine_without_one_is_told_by_a_look_at_few_names(monkeypatch, tmp_path):
    """Neither the PCI bus nor the tools are looked at; host is chosen, and the reasons have it."""
    monkeypatch.setattr(machine, "probe", lambda: pytest.fail("it was looked closer"))
    monkeypatch.setattr(os, "listdir", lambda place: [])
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("MLIR_AIE_INSTALL_DIR", raising=False)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    said = NpuBackend().probe()
    assert isinstance(said, Unavailable) and not said.compiles
    assert said.reason == "no device node in /dev/accel, and no aiecc, which makes images"
    with pytest.raises(BackendUnavailable, match=r"backend npu cannot run here: no device node.*`iron doctor --npu` says what is needed\."):
        choose.choose("npu")


@pytest.mark.parametrize("what", ["node", "path", "wheel", "folder"])
def test_anything_of_it_is_looked_at_closer(monkeypatch, tmp_path, what):
    monkeypatch.setattr(machine, "probe", lambda: Available("here"))
    monkeypatch.setattr(os, "listdir", lambda place: ["accel0"] if what == "node" else [])
    monkeypatch.setenv("PATH", str(tmp_path / "bin" if what == "path" else tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(sys, "path", [str(tmp_path if what == "wheel" else tmp_path / "none")])
    monkeypatch.setenv("MLIR_AIE_INSTALL_DIR", str(tmp_path) if what == "folder" else "")
    for folder in (tmp_path / "bin", tmp_path / "mlir_aie" / "bin"):
        folder.mkdir(parents=True)
        (folder / "aiecc").write_text("#!/bin/sh\n")
        (folder / "aiecc").chmod(0o755)
    assert NpuBackend().probe() == Available("here")


def test_asking_it_brings_nothing_along():
    """No module of a tool, of subprocesses or of printing: `iron-run` asks it at every start, before host."""
    start = "from iron_core.backends import choose; choose.get('host')"
    asked = "from iron_core.backends import choose; choose.get('host'); choose.probe(choose.get('npu'))"
    before, after = (modules_after(code)[code] for code in (start, asked))
    new = {name for name in after - before if name.startswith(("iron_", "subprocess", "json", "numpy"))}
    assert new == {"iron_npu", "iron_npu.backend"}


def test_the_device_of_the_machine_is_the_first(monkeypatch):
    """npu2 where there is none; every variant is legal."""
    assert NpuBackend().devices()[0] == "npu2" and set(NpuBackend().devices()) == set(array_devices())
    monkeypatch.setattr(System, "nodes", lambda self: (type("Node", (), {"family": "npu1"}),))
    assert NpuBackend().devices() == array_devices("npu1") and array_devices("npu1")[0] == "npu1"


def test_it_is_the_first_choice_where_it_can_run(device):
    """Before host, and a graph says why."""
    device()
    found = choose.choose()
    assert found.backend.name == "npu" and found.dev == "npu2" and found.reasons[0] == "npu is the first available (simulated)."


def test_what_it_takes_is_what_the_simulator_takes():
    """Both say what an array says."""
    sim = choose.get("sim") if importlib.util.find_spec("iron_sim") else pytest.skip("iron-sim is not installed")
    for op in (SiLU(size=4096), SiLU(size=4095), SiLU(size=4096, T="float32")):
        assert repr(NpuBackend().supports(op, "npu2")) == repr(sim.supports(op, "npu2"))
