"""Gathers in graphs: on a full ELF the host makes control words before it runs, and ids that the graph makes are left to `GatherWords`."""

from __future__ import annotations

import numpy as np
import pytest

import iron_core as iron
from iron_core.image.array_image import freeze, thaw
from iron_npu.mlir.fused import print_version
from iron_ops_aie import Copy, SiLU
from iron_sim import executable
from iron_sim.errors import PoisonError
from iron_sim.executable import SimExecutable
from tests.npu.structural import require
from tests.sim.calls import Calls

F32 = np.float32


class Chained(iron.Graph):
    """Ids pick ids, which pick rows; and the caller's ids pick rows of the same table."""

    def __init__(self, rows):
        rng = np.random.default_rng(rows)
        self.next = iron.weight(rng.integers(-40, 40, (rows, 1)).astype(np.int32))
        self.table = iron.weight(rng.standard_normal((30, 12)).astype(F32))

    def body(self, ids):
        made = Copy(self.next[ids]).reshape(ids.shape[0])
        return Copy(self.table[made]), Copy(self.table[ids])


def ids(rows, seed=0):
    return np.random.default_rng(seed).integers(-rows, rows, rows).astype(np.int32)


@pytest.mark.parametrize("rows", [1, 8, 13, 30])
@pytest.mark.parametrize("dev", ["npu1", "npu2"])
def test_ids_the_graph_made_pick_rows(dev, rows):
    """Negative ones from the end and clipped to the table, call after call; one dispatch on npu2, one a step on npu1."""
    graph = Chained(rows)
    run = graph.compile(backend="sim", dev=dev, ids=((rows,), np.int32))
    for seed in range(3):
        got, want = run(ids(rows, seed)), graph.reference(ids(rows, seed))
        assert [np.asarray(one).tobytes() for one in got] == [np.asarray(one).tobytes() for one in want]
    (version,) = run.versions.values()
    names = [step.operator for step in version.image.steps]
    assert ("  inserted   copy1_words: GatherWords" in run.explain().split("\n")) == (dev == "npu2")
    assert names == (["Copy", "GatherWords", "Copy", "Copy"] if dev == "npu2" else ["Copy"] * 3)


def test_nothing_is_encoded_while_a_full_elf_runs(monkeypatch):
    """What the host encodes of the caller's ids is there before; a chain of dispatches lets it in between them."""
    order = []
    encode, machine = executable.encode, executable.Machine.run
    monkeypatch.setattr(executable, "encode", lambda *given: order.append("encode") or encode(*given))
    monkeypatch.setattr(executable.Machine, "run", lambda *given: order.append("run") or machine(*given))
    for dev, want in (("npu2", ["encode"] * 2 + ["run"] * 4), ("npu1", ["encode", "run"] * 3)):
        Chained(8).compile(backend="sim", dev=dev, ids=((8,), np.int32))(ids(8))
        assert order == want
        order.clear()


def test_ids_in_a_state_are_the_graphs():
    """A call may have written them, so the host, which would have to read them first, does not encode them."""

    class Held(iron.Graph):
        def __init__(self):
            self.ids = iron.state((9,), np.int32)
            self.table = iron.weight(np.arange(40, dtype=F32).reshape(10, 4))

        def body(self, x):
            rows = Copy(self.table[self.ids[:]])
            Copy(x, self.ids)
            return rows

    graph = Held()
    run = graph.compile(backend="sim", dev="npu2", x=((9,), np.int32))
    before = np.zeros(9, np.int32)
    for seed in range(3):
        given = ids(9, seed)
        assert np.asarray(run(given)).tolist() == np.asarray(graph.table.data)[before].tolist()
        before = given


def test_an_id_that_nobody_wrote_is_told():
    """By the port that it would steer."""

    class Unwritten(iron.Graph):
        def __init__(self):
            self.table = iron.weight(np.arange(64, dtype=F32).reshape(16, 4))

        def body(self, x):
            return Copy(self.table[Calls(x, half=True)])

    run = Unwritten().compile(backend="sim", dev="npu2", x=((32,), np.int32))
    with pytest.raises(PoisonError, match="a word that nobody wrote arrives at the control port"):
        run(np.zeros(32, np.int32))


def test_an_image_from_the_cache_gathers():
    """What the host writes beside it is said by its data."""
    run = Chained(13).compile(backend="sim", dev="npu2", ids=((13,), np.int32))
    (version,) = run.versions.values()
    want, outputs = run(ids(13)), [np.zeros((13, 12), F32) for _ in range(2)]
    SimExecutable(thaw(freeze(version.image)), version.load().memory).run([ids(13)], outputs, {})
    assert [one.tobytes() for one in outputs] == [np.asarray(one).tobytes() for one in want]


def test_the_printer_has_the_step_and_its_tensors():
    """Control words and the table's address are arguments that the host writes."""
    plan = Chained(8).compile(dev="npu2", backend="null", ids=((8,), np.int32)).plan
    made = print_version(plan, plan.versions[0].signature)
    require(made.text)
    assert "aiex.configure @GatherWords_" in made.text
    assert [a.name for a in made.addresses.arguments[:4]] == ["input", "output", "control", "address"]
    assert [control.ids is None for control in made.tensors.controls] == [False, True, False]
    (table,) = made.tensors.addresses
    assert plan.residents[table.index].name == "table"


def test_a_graph_that_gathers_and_computes_is_the_reference():
    """Rows go on to other steps."""

    class Through(iron.Graph):
        def __init__(self):
            self.next = iron.weight(np.arange(16, dtype=np.int32)[::-1].reshape(16, 1).copy())
            self.table = iron.state((16, 64))

        def body(self, x, ids):
            Copy(x, self.table)
            return SiLU(Copy(self.table[Copy(self.next[ids]).reshape(16)]))

    x = np.random.default_rng(0).standard_normal((16, 64)).astype(iron.bfloat16)
    graph = Through()
    run = graph.compile(backend="sim", dev="npu2", x=(16, 64), ids=((16,), np.int32))
    got, want = np.asarray(run(x, ids(16))).astype(F32), np.asarray(graph.reference(x, ids(16))).astype(F32)
    assert np.allclose(got, want, rtol=0.02, atol=0.01)
