"""Measuring and profiling on a simulated device: run lists in turn, alone, in a power mode; dispatches with their times."""

from __future__ import annotations

import fcntl
import json
import os

import numpy as np
import pytest

import iron_core as iron
from iron_core.backends import choose
from iron_core.backends.measuring import Measuring, Run, RunList, Timing
from iron_core.backends.run_profile import Profiling, profiled
from iron_core.devices import device as named
from iron_core.errors import CallError, UnsupportedError
from iron_npu.backend import NpuBackend
from iron_npu.errors import NpuError
from iron_npu.runtime import power
from iron_npu.runtime.device import opened
from iron_npu.runtime.power import alone, power_mode
from iron_ops_aie import GEMV, ElementwiseAdd, SiLU

SHORT = Timing(rounds=3, calls=2)
NPU2 = named("npu2")


@pytest.fixture
def lock(tmp_path, monkeypatch):
    monkeypatch.setattr(power.tempfile, "gettempdir", lambda: str(tmp_path))
    return tmp_path / "iron-npu.lock"


@pytest.mark.usefixtures("xrt", "lock")
def test_run_lists_are_timed_and_give_what_the_simulator_gives():
    """Both packagings; a call of a list moves nothing but what is run."""
    backend, sim = NpuBackend(), choose.get("sim")
    assert isinstance(backend, Measuring)
    lists = [
        RunList("both", (Run(SiLU(size=4096)), Run(ElementwiseAdd(size=4096)), Run(SiLU(size=4096)))),
        RunList("each", (Run(SiLU(size=4096), {"valid": 2048}), Run(GEMV(M=64, K=64))), dispatch="separate"),
        RunList("timed", (Run(SiLU(size=4096)),), compared=False),
    ]
    got, want = backend.measure(lists, NPU2, SHORT), sim.measure(lists, NPU2, SHORT)
    for one, other in zip(got[:2], want[:2], strict=True):
        assert one.digest() == other.digest() and len(one.round_us) == 3 and one.us > 0 and not one.disturbed
    assert got[2].outputs == {} and got[2].round_us


@pytest.mark.usefixtures("lock")
def test_lists_far_behind_are_timed_no_further(xrt, monkeypatch):
    from iron_npu import measure

    took = iter([1.0, 10.0] * 9)
    monkeypatch.setattr(measure._Loaded, "median_us", lambda self, calls: next(took))
    lists = [RunList(name, (Run(SiLU(size=4096)),), compared=False) for name in ("fast", "slow")]
    fast, slow = NpuBackend().measure(lists, NPU2, Timing(rounds=4, settle=1, cutoff=2.0))
    assert (len(fast.round_us), len(slow.round_us)) == (4, 1)


@pytest.mark.usefixtures("xrt", "lock")
def test_what_cannot_be_measured_is_named():
    with pytest.raises(UnsupportedError, match=r"odd, run 0: tunables tile; npu has no lowering of its own\. Legal: none\."):
        NpuBackend().measure([RunList("odd", (Run(SiLU(size=4096), tunables={"tile": 1}),))], NPU2, SHORT)
    with pytest.raises(UnsupportedError, match="float32"):
        NpuBackend().measure([RunList("wide", (Run(SiLU(size=4096, T="float32")),))], NPU2, SHORT)


def test_a_power_mode_is_set_and_left(xrt, lock, monkeypatch):
    """By xrt-smi, while no context of this process is alive; figures name it. Without one nothing is run."""
    lines = []

    def command(line):
        lines.append((*line, len(xrt.alive)))
        return 0, ""

    monkeypatch.setattr(power, "command", command)
    runs = [RunList("one", (Run(SiLU(size=4096)),), compared=False)]
    NpuBackend().measure(runs, NPU2, SHORT)
    assert not lines and NpuBackend().platform(NPU2).mode == "as found"
    fast = NpuBackend(pmode="turbo")
    fast.measure(runs, NPU2, SHORT)
    assert lines == [("xrt-smi", "configure", "--pmode", mode, 0) for mode in ("turbo", "default")]
    assert (fast.platform(NPU2).name, fast.platform(NPU2).mode) == ("NPU Strix", "turbo")


def test_a_mode_that_is_refused_is_told(xrt):
    """With xrt-smi's words, on one line; so is a program that is not there."""
    npu = opened(xrt)
    with pytest.raises(NpuError, match=r"pmode='turbo': `xrt-smi configure --pmode turbo` failed \(ERROR: no rights\)"):
        with power_mode(npu, "turbo", lambda line: (1, "ERROR:\n no rights")):
            pytest.fail("it went on")
    assert power.command(("no-such-program-of-xrt",))[0] == -1
    for wrong in ("Turbo", "", "a b", 3):
        with pytest.raises(CallError, match="pmode="):
            NpuBackend(pmode=wrong)


def test_one_process_measures_at_a_time(xrt, lock, monkeypatch):
    """By a file that every user locks, whoever made it."""
    with lock.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(NpuError, match="another process measures on this NPU"):
            with alone(opened(xrt)):
                pytest.fail("it went on")
    with alone(opened(xrt)):
        pass
    opens = os.open

    def anothers(path, flags, *mode):
        if flags & os.O_CREAT:
            raise PermissionError(path)
        return opens(path, flags, *mode)

    monkeypatch.setattr(power.os, "open", anothers)
    with alone(opened(xrt)):
        pass


class Net(iron.Graph):
    def __init__(self):
        self.w = iron.weight(np.ones((64, 64), iron.bfloat16))

    def body(self, x):
        return SiLU(GEMV(self.w, SiLU(x)))


@pytest.mark.parametrize("packaging", [{}, {"boundaries": iron.each_step}], ids=["elf", "chain"])
def test_a_profile_has_every_dispatch(xrt, tmp_path, packaging):
    """Of a chain each step, one at a time; a full ELF is one."""
    net = Net().compile(backend=NpuBackend(), dev="npu2", x=(64,), **packaging)
    (version,) = net.versions.values()
    assert isinstance(net.backend, Profiling)
    with profiled(net.backend, {"all": version.load()}) as found:
        for _ in range(3):
            net(np.ones(64, iron.bfloat16))
        with pytest.raises(CallError, match="recorded already"), profiled(net.backend, {"all": version.load()}):
            pass
    (phase,) = found.phases()
    kinds = {row.kind: row.steps for row in phase.rows}
    assert kinds == ({"SiLU": 2, "GEMV bfloat16": 1} if packaging else {"full ELF": 1})
    assert phase.passes == 3 and phase.resident == 64 * 64 * 2 and "waiting" in found.note
    found.write_trace(tmp_path / "trace.json")
    assert {"all"} < {event["name"] for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]}
    calls = xrt.starts
    net(np.ones(64, iron.bfloat16))
    assert found.phases()[0].passes == 3 and xrt.starts == calls + (3 if packaging else 1)
