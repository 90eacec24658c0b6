"""`RunProfile`: one protocol for what backends that keep times say of their runs."""

from __future__ import annotations

import json
import math

import attrs
import numpy as np
import pytest

import iron_core as iron
from iron_core.backends.run_profile import Phase, Profiling, RunProfile, StepTimes, profiled
from iron_core.errors import CallError, UnsupportedError
from iron_ops_aie import GEMV, ReLU

BOTH = pytest.mark.parametrize(("backend", "dev"), [("host", None), ("sim", "npu2")])


class Net(iron.Graph):
    def __init__(self) -> None:
        self.w = iron.weight(np.ones((256, 256), iron.bfloat16))

    def body(self, x):
        return ReLU(GEMV(self.w, ReLU(x)))


@pytest.fixture
def net(backend, dev):
    return Net().compile(backend=backend, dev=dev, x=(256,))


@BOTH
def test_its_phases_and_rows_are_the_same_data_on_every_backend(net):
    """Passes, steps by kind, seconds that add up, bytes that are at least the weights'."""
    (version,) = net.versions.values()
    with profiled(net.backend, {"all": version.load()}) as found:
        for _ in range(3):
            net(np.ones(256, iron.bfloat16))
    assert isinstance(found, RunProfile) and isinstance(net.backend, Profiling)
    (phase,) = found.phases()
    rows = {row.kind: row for row in phase.rows}
    assert (phase.name, phase.passes) == ("all", 3)
    assert {kind: row.steps for kind, row in rows.items()} == {"ReLU": 2, "GEMV bfloat16": 1}
    assert rows["GEMV bfloat16"].nbytes >= 256 * 256 * 2 and phase.resident == 256 * 256 * 2
    assert all(row.seconds > 0 and row.busy > 0 for row in phase.rows)
    assert phase.mean == pytest.approx(phase.between_steps + sum(row.seconds for row in phase.rows))
    assert 0 < phase.fastest <= phase.median


@BOTH
def test_it_is_data_and_a_trace(net, tmp_path):
    """As JSON, and as a file with a slice a pass and a step."""
    (version,) = net.versions.values()
    with profiled(net.backend, {"all": version.load()}) as found:
        net(np.ones(256, iron.bfloat16))
    plain = json.loads(json.dumps(found.as_dict()))
    assert [set(phase) for phase in plain["phases"]] == [{field.name for field in attrs.fields(Phase)}]
    assert (plain["limits"] is None) == (found.limits is None)
    found.write_trace(tmp_path / "trace.json")
    names = [event["name"] for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"] if event["ph"] == "X"]
    assert {"all", "gemv0", "relu0", "relu1"} <= set(names)


@BOTH
def test_what_runs_outside_of_the_block_is_not_recorded(net):
    """And a profile without a run has no phase."""
    (version,) = net.versions.values()
    with profiled(net.backend, {"all": version.load()}) as found:
        pass
    net(np.ones(256, iron.bfloat16))
    assert found.phases() == [] and list(found.step_times()) == []


@BOTH
def test_one_recording_at_a_time(net):
    """A second of the same runs is refused, and the first goes on."""
    (version,) = net.versions.values()
    loaded = {"all": version.load()}
    with profiled(net.backend, loaded) as found:
        with pytest.raises(CallError, match="recorded already; one recording at a time"), profiled(net.backend, loaded):
            raise AssertionError("entered")
        net(np.ones(256, iron.bfloat16))
    assert [phase.passes for phase in found.phases()] == [1]


def test_a_backend_without_times_says_so():
    """UnsupportedError, before anything runs."""
    net = Net().compile(backend="reference", x=(256,))
    with pytest.raises(UnsupportedError, match="backend reference keeps no times of its steps"), profiled(net.backend, {}):
        raise AssertionError("entered")


def test_passes_are_added_up():
    """Of three passes of 1, 2 and 6 seconds with 1 and 3 between them; rows and kernels come slowest first."""
    rows = [StepTimes("a", 1, 0.5, 0.5, 0), StepTimes("b", 2, 1.5, 3.0, 0)]
    phase = Phase.of("x", [(0.0, 1.0), (2.0, 4.0), (7.0, 13.0)], rows, 8.0, [("p", 0.1), ("q", 0.2)])
    assert (phase.passes, phase.fastest, phase.median, phase.mean) == (3, 1.0, 2.0, 3.0)
    assert math.isclose(phase.between_steps, 1.0) and phase.between_passes == 2.0
    assert [row.kind for row in phase.rows] == ["b", "a"] and phase.kernels == (("q", 0.2), ("p", 0.1))
