"""The runtime on a simulated device: what calls give is what the simulator gives, bit for bit."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

import iron_core as iron
from iron_core import bfloat16
from iron_npu import building
from iron_npu.backend import NpuBackend
from iron_ops_aie import GEMM, GEMV, Copy, ElementwiseAdd, SiLU

F32 = np.float32
PACKAGINGS = {"elf": {}, "chain": {"boundaries": iron.each_step}, "contexts": {"image": iron.CONTEXTS}}


def compiled(graph, dev="npu2", backend=None, **shapes):
    return graph.compile(backend=backend or NpuBackend(), dev=dev, **shapes)


class Layer(iron.Graph):
    """Products, a cache that is written at a position, and bounds."""

    def __init__(self):
        rng = np.random.default_rng(0)
        self.wide, self.narrow = ((rng.standard_normal(s) / 8).astype(bfloat16) for s in ((128, 64), (64, 128)))
        self.w = (rng.standard_normal((64, 64)) / 8).astype(bfloat16)
        self.rows = iron.state((64, 64))

    def body(self, x, many, *, at: iron.Scratchpad[np.int32], n: iron.Scratchpad[np.int32]):
        Copy(GEMV(self.narrow, GEMV(self.wide, x)), self.rows[at])
        return ElementwiseAdd(self.rows[:n], SiLU(self.rows[:n])), GEMM(many[:n], self.w)


@pytest.mark.parametrize("lists", [False, "states", "word"])
def test_dispatches_are_handed_over_together(xrt, lists):
    """Or one by one: nothing changes. That they are over, their states say, or the list."""
    xrt.says = lists == "word"
    graph = Layer()
    shapes = dict(x=(64,), many=(64, 64), boundaries=iron.each_step)
    run = compiled(graph, backend=NpuBackend(lists=bool(lists)), **shapes)
    want = graph.compile(backend="sim", dev="npu2", **shapes)
    given = [np.ones(s, bfloat16) for s in ((64,), (64, 64))]
    for at in range(2):
        got, there = (one(*given, at=at, n=16) for one in (run, want))
        assert [np.asarray(one).tobytes() for one in got] == [np.asarray(one).tobytes() for one in there]
    assert (xrt.handed > 0) == bool(lists) and xrt.starts == 12


@pytest.mark.parametrize("packaging", PACKAGINGS)
def test_calls_give_what_the_simulator_gives(xrt, packaging):
    rng = np.random.default_rng(1)
    graph = Layer()
    shapes = dict(x=(64,), many=(64, 64), **PACKAGINGS[packaging])
    run = compiled(graph, **shapes)
    want = graph.compile(backend="sim", dev="npu2", **shapes)
    for at in range(3):
        given = [rng.standard_normal(s).astype(bfloat16) for s in ((64,), (64, 64))]
        n = 16 * (at + 1) if at < 2 else 32
        got, there = (one(given[0], given[1][:n], at=at, n=n) for one in (run, want))
        assert [np.asarray(one).tobytes() for one in got] == [np.asarray(one).tobytes() for one in there]
    assert run.read("rows").tobytes() == want.read("rows").tobytes()
    counted = [attrs.evolve(one.traffic, loads=0) for one in (run, want)]
    assert counted[0] == counted[1] and run.traffic.loads >= want.traffic.loads, "a chain configures a design, not an array"


# -- gathers -------------------------------------------------------------------------------------------


class Chained(iron.Graph):
    """Ids pick ids, which pick rows; and the caller's ids pick rows of the same table."""

    def __init__(self, rows=13):
        rng = np.random.default_rng(rows)
        self.next = iron.weight(rng.integers(-40, 40, (rows, 1)).astype(np.int32))
        self.table = iron.weight(rng.standard_normal((30, 12)).astype(F32))

    def body(self, ids):
        made = Copy(self.next[ids]).reshape(ids.shape[0])
        return Copy(self.table[made]), Copy(self.table[ids])


@pytest.mark.parametrize("packaging", PACKAGINGS)
def test_ids_pick_rows(xrt, packaging):
    """The addresses in control words are the device's own, of the table's buffer there: of the caller's ids, and of those a graph makes."""
    graph = Chained()
    run = compiled(graph, ids=((13,), np.int32), **PACKAGINGS[packaging])
    for seed in range(2):
        ids = np.random.default_rng(seed).integers(-13, 13, 13).astype(np.int32)
        assert [np.asarray(one).tobytes() for one in run(ids)] == [np.asarray(one).tobytes() for one in graph.reference(ids)]


@pytest.mark.parametrize("packaging", PACKAGINGS)
def test_ids_pick_rows_of_what_a_call_gives(xrt, packaging):
    """An operator alone: its table is no resident, and lies with the inputs."""
    op = Copy(gather=True, table_rows=30, rows=5, input_size=360, X=F32)
    run = iron.OperatorImage(op, backend=NpuBackend(), dev="npu2", **PACKAGINGS[packaging])
    for seed in range(2):
        table = np.random.default_rng(seed).standard_normal((30, 12)).astype(F32)
        assert np.asarray(run(table.reshape(-1), np.array([3, -1, 29, 0, 40], np.int32))).tobytes() == table[[3, 29, 29, 0, 29]].tobytes()


def test_a_table_that_moves_is_found_again(xrt):
    """A version added later needs a larger bank of weights: its address is another one."""

    class Grows(Chained):
        def __init__(self):
            super().__init__()
            self.more = iron.weight(np.ones((64, 64), bfloat16))

        def body(self, ids, x=None):
            rows = super().body(ids)
            return rows if x is None else (*rows, GEMV(self.more, x))

    graph = Grows()
    run = compiled(graph, ids=((13,), np.int32))
    ids = np.arange(13, dtype=np.int32)
    before = [np.asarray(one).tobytes() for one in run(ids)]
    (version,) = run.versions.values()
    bank = version.load().memory.held[0]
    x = np.ones(64, bfloat16)
    assert [np.asarray(one).tobytes() for one in run(ids, x)][:2] == before
    assert version.load().memory.held[0] is not bank
    assert [np.asarray(one).tobytes() for one in run(ids)] == before


# -- streams -------------------------------------------------------------------------------------------


class Sized(iron.Graph):
    def body(self, x, *, n: iron.Scratchpad[np.int32]):
        return SiLU(ElementwiseAdd(x[:n], x[:n]))


@pytest.mark.parametrize("packaging", ["chain", "contexts"])
@pytest.mark.parametrize("dev", ["npu1", "npu2"])
def test_a_stream_is_made_once_for_distinct_numbers(device, builder, monkeypatch, dev, packaging):
    """Of each step; the last ones are kept."""
    device(name="NPU Phoenix" if dev == "npu1" else "NPU Strix")
    made, stream = [], building.stream
    monkeypatch.setattr(building, "stream", lambda file, scalars: made.append((file.path, scalars)) or stream(file, scalars))
    shapes = dict(x=(4096,), **PACKAGINGS[packaging])
    run, want = compiled(Sized(), dev, **shapes), Sized().compile(backend="sim", dev=dev, **shapes)
    x = np.random.default_rng(0).standard_normal(4096).astype(bfloat16)
    for n in (1024, 4096, 1024, 4096):
        assert run(x, n=n).tobytes() == want(x, n=n).tobytes()
    assert len(made) == len(set(made)) == 4, "of two steps, for two bounds"


# -- packs ---------------------------------------------------------------------------------------------


def test_arrays_that_share_a_configuration_are_entered_once(xrt):
    """As the plan was told; versions that are added later leave the first as it is."""

    class Narrow(iron.Graph):
        def body(self, x):
            return ElementwiseAdd(SiLU(ElementwiseAdd(x, x, num_aie_columns=2), num_aie_columns=2), x, num_aie_columns=2)

    graph = Narrow()
    plan = graph.compile(dev="npu2", backend="null", x=(4096,)).plan
    pack = {iron.array_key(step.op.resolved("npu2")) for step in plan.versions[0].steps}
    run = compiled(graph, x=(4096,), coresident=[pack])
    want = graph.compile(dev="npu2", backend="sim", x=(4096,), coresident=[pack])
    x = np.random.default_rng(0).standard_normal(4096).astype(bfloat16)
    assert run(x).tobytes() == want(x).tobytes() and run.traffic.loads == want.traffic.loads == 1
    run.add(x=(8192,))
    run(np.concatenate([x, x]))
    before = run.traffic.loads
    assert run(x).tobytes() == want(x).tobytes() and run.traffic.loads == before + 1
