"""Traces: a track per actor, in microseconds of simulated time, and a file that Perfetto opens."""

from __future__ import annotations

import json
from collections import defaultdict

import numpy as np
import pytest

import iron_core as iron
from iron_core import Pattern, bfloat16
from iron_core.array.build import build
from iron_ops_aie import ElementwiseAdd, SiLU
from iron_sim.backend import SimBackend
from iron_sim.errors import Deadlock
from iron_sim.run import simulate
from iron_sim.timing.measure import step
from iron_sim.trace import HOST

OP = ElementwiseAdd(size=4096, num_aie_columns=2, tile_size=256)


@pytest.fixture
def given():
    return type(OP).test.draw(OP, np.random.default_rng(0))


def tracks(path):
    """A trace file's events by the name of their track, and the events themselves."""
    document = json.loads(path.read_text())
    names, events = {}, []
    for event in document["traceEvents"]:
        if event["ph"] == "M":
            assert event["name"] == "thread_name" and event["tid"] not in names
            names[event["tid"]] = event["args"]["name"]
        else:
            assert event["ph"] == "X" and event["tid"] in names
            events.append(event)
    found = defaultdict(list)
    for event in events:
        found[names[event["tid"]]].append(event)
    return found, events


def test_every_actor_has_a_track(tmp_path, given):
    """Cores, streams and the sequence; a core's events are its kernel calls."""
    path = tmp_path / "trace.json"
    _, _, stats = simulate(OP, "npu2", given, trace=str(path))
    found, _ = tracks(path)
    design = build(OP, "npu2").design
    assert set(found) == {"the sequence", *(core.name for core in design.array.cores), *(f"stream {f.name}" for f in design.array.fifos)}
    calls = [e for core in design.array.cores for e in found[core.name]]
    assert len(calls) == stats.calls == 16
    assert {e["name"] for e in calls} == {kernel.symbol for kernel in design.array.kernels}
    assert [e["name"] for e in found["the sequence"]] == [type(s).__name__ for s in design.sequence.steps]


def test_an_actor_does_one_thing_at_a_time(tmp_path, given):
    """Events of a track follow one another; none starts before zero."""
    path = tmp_path / "trace.json"
    simulate(OP, "npu2", given, trace=str(path))
    found, events = tracks(path)
    for name, track in found.items():
        end = 0
        for event in track:
            assert event["ts"] >= end - 1e-9 and event["dur"] >= 0, name
            end = event["ts"] + event["dur"]
    assert max(e["ts"] + e["dur"] for e in events) <= step(OP, "npu2").us + 1e-9


def test_a_kernel_is_called_after_its_inputs_came_and_before_its_output_leaves(tmp_path, given):
    path = tmp_path / "trace.json"
    simulate(OP, "npu2", given, trace=str(path))
    found, _ = tracks(path)
    for k in range(8):
        call = found["core0"][k]
        for stream in ("stream a0", "stream b0"):
            assert sum(e["ts"] + e["dur"] <= call["ts"] for e in found[stream]) > 0
    assert found["core0"][0]["ts"] + found["core0"][0]["dur"] <= found["stream y0"][0]["ts"]


def test_two_traces_of_one_run_are_equal(tmp_path, given):
    """And tracing changes nothing of what is computed or of the time it takes."""
    plain, _, untraced = simulate(OP, "npu2", given)
    paths = [tmp_path / f"{i}.json" for i in range(2)]
    for path in paths:
        outputs, _, stats = simulate(OP, "npu2", given, trace=str(path))
        assert outputs["y"].tobytes() == plain["y"].tobytes() and stats == untraced
    assert paths[0].read_bytes() == paths[1].read_bytes()


def prices(run):
    """What a call's dispatch and entries take."""
    found = SimBackend().price(next(iter(run.versions.values())).image)
    return found.dispatch_us + sum(found.entries) + found.reset_us


class Two(iron.Graph):
    def body(self, x):
        return ElementwiseAdd(SiLU(x), x)


def test_a_graphs_steps_and_calls_follow_one_another(tmp_path):
    """Every event names its step; a second call's come after the first's in the same file."""
    path = tmp_path / "trace.json"
    run = Two().compile(backend=SimBackend(trace=str(path)), dev="npu2", x=(4096,))
    x = np.ones(4096, bfloat16)
    run(x)
    _, first = tracks(path)
    steps = [e["cat"] for e in first if e["cat"] != HOST]
    assert set(steps) == {"silu0", "elementwiseadd0"}
    assert [e["name"] for e in first if e["cat"] == HOST] == ["dispatch", "configure", "configure"]
    ends = {step: max(e["ts"] + e["dur"] for e in first if e["cat"] == step) for step in set(steps)}
    assert ends["silu0"] <= min(e["ts"] for e in first if e["cat"] == "elementwiseadd0")
    run(x)
    _, both = tracks(path)
    assert len(both) == 2 * len(first) and both[: len(first)] == first
    assert sum(e["dur"] for e in first if e["cat"] == HOST) == pytest.approx(prices(run))
    assert min(e["ts"] for e in both[len(first) :]) >= max(ends.values())


class Stuck(SiLU):
    """Its sequence forgets the input."""

    def sequence(self, rt):
        rt.preamble()
        rt.drain("y", 0, Pattern.whole((self.size,)), wait=True)


def test_a_call_that_fails_leaves_its_trace(tmp_path):
    """It shows how far each actor came."""

    class Graph(iron.Graph):
        def body(self, x):
            return Stuck(SiLU(x), num_aie_columns=1)

    path = tmp_path / "trace.json"
    run = Graph().compile(backend=SimBackend(trace=str(path)), dev="npu2", x=(4096,))
    with pytest.raises(Deadlock):
        run(np.ones(4096, bfloat16))
    found, events = tracks(path)
    assert {e["cat"] for e in events} == {HOST, "silu0", "stuck0"}
    assert [e["name"] for e in found["the sequence"] if e["cat"] == "stuck0"] == ["WriteWord", "SetBarrier", "Transfer"]


def test_the_environment_names_a_file(tmp_path, monkeypatch):
    path = tmp_path / "trace.json"
    monkeypatch.setenv("IRON_SIM_TRACE", str(path))
    Two().compile(backend=SimBackend(), dev="npu1", x=(4096,))(np.ones(4096, bfloat16))
    found, _ = tracks(path)
    assert "the sequence" in found


def test_the_environment_counts_when_a_version_is_loaded(tmp_path, monkeypatch):
    """A name means one object, so it cannot have looked before."""
    monkeypatch.delenv("IRON_SIM_TRACE", raising=False)
    two = Two().compile(backend="sim", dev="npu1", x=(4096,))
    monkeypatch.setenv("IRON_SIM_TRACE", str(tmp_path / "trace.json"))
    two(np.ones(4096, bfloat16))
    assert (tmp_path / "trace.json").exists()


def test_nothing_is_written_unless_asked(tmp_path, monkeypatch):
    monkeypatch.delenv("IRON_SIM_TRACE", raising=False)
    monkeypatch.chdir(tmp_path)
    Two().compile(backend="sim", dev="npu1", x=(4096,))(np.ones(4096, bfloat16))
    assert list(tmp_path.iterdir()) == []
