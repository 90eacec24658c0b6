"""What pictures say of a run list: what runs, with what is folded in, moved, shared and priced."""

from __future__ import annotations

import pytest

import iron_core as iron
from iron_core import Profile
from iron_core.backends.pricing import Prices
from iron_core.errors import CallError
from iron_core.visualize.flow import arena_uses
from iron_core.visualize.subject import subject
from iron_core.visualize.times import duration, times
from iron_ops_aie import GEMV
from tests.pictures.conftest import Layers, Priced


def run_of(compiled):
    shown = subject(compiled)
    return shown.run_list(shown.version(None))


def test_a_row_for_each_step_that_runs_with_what_it_computes_besides(layers):
    """A folded step is in the row that computes it: a norm in front, SiLU and a residual behind."""
    run = run_of(layers(2))
    assert [row.operator for row in run.rows] == ["GEMV"] * 4
    first, second = run.rows[:2]
    assert [(part.operator, part.how) for part in first.inside] == [("RMSNorm", "before"), ("SiLU", "after")]
    assert [(part.operator, part.how) for part in second.inside] == [("ElementwiseAdd", "after")]
    assert run.places["silu0"] == (first.number,) and run.places["elementwiseadd1"] == (3,)
    assert first.reads == ("layers.0.up", "norm") and "M=128 K=64" in first.short


def test_rows_of_the_host_are_those_of_the_graph():
    """Without arrays there are neither entries nor tunables of arrays, and a row says what runs it."""
    run = run_of(Layers(1).compile(x=(64,), backend="reference"))
    assert [row.operator for row in run.rows] == ["RMSNorm", "GEMV", "SiLU", "GEMV", "ElementwiseAdd"]
    assert not run.arrays and not run.entries and all(row.how for row in run.rows)


def test_a_traced_graph_is_pictured_too():
    """Before anything is compiled."""
    assert len(run_of(Layers(3).trace(x=(64,))).rows) == 15


def test_arrays_are_shared_by_the_steps_of_all_layers(layers):
    """Each with the rows that use it and where its tiles are; entries are runs of rows of one array."""
    run = run_of(layers(3))
    assert [used.steps for used in run.arrays] == [(0, 2, 4), (1, 3, 5)]
    assert [row.array for row in run.rows] == [0, 1] * 3 and len(run.entries) == 6
    assert all(used.columns and set(used.placement) == {tile.name for tile in used.array.tiles} for used in run.arrays)


def test_a_step_that_no_array_takes_is_said():
    """The rows of the graph are shown, and why there is no image."""
    from iron_ops_aie import Softmax

    class Odd(iron.Graph):
        def body(self, x):
            return Softmax(x)

    run = run_of(Odd().compile(x=(3, 5), backend="null", dev="npu2"))
    assert [row.operator for row in run.rows] == ["Softmax"] and "Softmax" in run.why and run.image is None


def test_moved_tunables_say_from_where(tuned):
    """Those of a profile, with what the operator would have chosen; none where nobody gave any."""
    moved = {row.name: [(one.name, one.value, one.by) for one in row.moved] for row in run_of(tuned).rows}
    assert moved["gemv0"] == moved["gemv2"] == [("tile_size_input", 2, "profile")] and not moved["gemv1"]
    assert all(one.default != one.value for row in run_of(tuned).rows for one in row.moved)


@pytest.fixture(scope="module")
def pack():
    """Three layers whose two products share a configuration."""
    with (profile := Profile()):
        profile.add(GEMV, num_aie_columns=4, num_channels=1)
        graphs = [Layers(3), Layers(3)]
        (alone,) = graphs[0].compile(x=(64,), backend="sim", dev="npu2", fold=True).versions.values()
        keys = tuple(step.array_key for step in alone.image.steps[:2])
        return graphs[1].compile(x=(64,), backend="sim", dev="npu2", fold=True, coresident=(keys,))


def test_a_pack_is_one_array_and_is_named(pack, outline):
    """Of both products, entered once; its page tells the operators, and draws the tiles of both."""
    run = run_of(pack)
    assert run.packs == (("GEMV", "GEMV"),) and len(run.arrays) == 1 and len(run.entries) == 1
    page = outline(pack.html())
    assert "Packs" in page.texts and "GEMV, GEMV" in page.texts and not page.wrong
    assert len([own for own in page.all("rect", "core")]) == 8


def test_what_is_in_the_arena_between_rows(layers):
    """A result from the row that writes it to the last that reads it; what stays inside a row is nowhere."""
    run = run_of(layers(2))
    uses = {use.name: (use.first, use.last) for use in arena_uses(run)}
    assert uses["silu0"] == (0, 1) and uses["elementwiseadd0"] == (1, 3) and uses["silu1"] == (2, 3)
    assert not {"rmsnorm0", "gemv0", "gemv1"} & set(uses)


def test_arena_uses_agree_with_what_is_placed(layers):
    """No two results share a byte while both are in use, folded or not."""
    for fold in (True, False):
        uses = arena_uses(run_of(layers(3, fold=fold)))
        assert len(uses) > 3
        for i, a in enumerate(uses):
            for b in uses[i + 1 :]:
                if a.ref.overlaps(b.ref):
                    assert a.last <= b.first or b.last <= a.first, (a, b)


def test_times_are_a_mapping_or_what_prices(layers):
    """Microseconds by step's name, text as it is, or a backend's prices with its entries."""
    run = run_of(layers(2))
    given = times({"gemv0": 12.5, "gemv1": "measured tomorrow", "nobody": 3}, run)
    assert given.us == {0: 12.5} and given.notes == {1: "measured tomorrow"} and given.total == 12.5
    priced = Priced(tuple(row.name for row in run.rows), (5.0,) * len(run.entries))
    assert isinstance(priced, Prices)
    found = times(priced, run)
    assert found.us == dict.fromkeys(range(4), 7.0) and found.total == 4 * 7 + 4 * 5 + 20
    assert not times(None, run).known
    with pytest.raises(CallError, match="table=3"):
        times(3, run)


def test_durations():
    """Three digits and a unit that fits."""
    assert [duration(us) for us in (0, 0.031, 43.14, 1200, 2.5e6)] == ["0.0 us", "0.031 us", "43.1 us", "1.20 ms", "2.50 s"]
