"""`iron tune MODEL`: from a command line to a cost table that narrows the model's graph."""

from __future__ import annotations

import json

import numpy as np
import pytest

import iron_core as iron
from iron_core.cli import main
from iron_core.devices import device
from iron_core.errors import UsageError
from iron_core.plugins.registry import registry
from iron_ops_aie import GEMV, Copy, ElementwiseAdd, SiLU
from iron_tuner import tune_model
from iron_tuner.cost_table import CostTable, cost_key
from iron_tuner.errors import CostError
from iron_tuner.model import constants
from iron_tuner.narrowing import JointNarrowing
from iron_tuner.points import COMPARED, compared, ladder, points
from tests.tuner.fake import FakeBackend
from tests.tuner.operators import NPU2, made


class Block(iron.Graph):
    """A product, an activation and a sum, beside a cache that a call writes a row of."""

    def __init__(self):
        self.w = np.ones((256, 64), iron.bfloat16)
        self.cache = iron.state((32, 256))

    def body(self, x, y, *, at: iron.Scratchpad[np.int32]):
        h = SiLU(GEMV(self.w, x))
        Copy(h.reshape(1, 256), self.cache[at])
        return ElementwiseAdd(h, y)


class Model:
    """What `iron.models.v1` names, as far as a tuner is concerned."""

    @staticmethod
    def compiled(argv, **options):
        Model.argv = argv
        return Block().compile(x=(64,), y=(256,), backend="sim", dev="npu2", **{k: v for k, v in options.items() if k != "unread"})


def us(run):
    """Fewer columns are faster here, but for products."""
    return 10.0 / run.op.num_aie_columns if isinstance(run.op.base, GEMV) else 5.0 + getattr(run.op, "num_aie_columns", 1)


LINE = ["tune", "block", "--calls", "1", "--rounds", "2", "--exhaustive", "4"]


@pytest.fixture(scope="module")
def fake(tmp_path_factory):
    """The backend that measures, and a model named block; in a folder and with a cache of this module's own."""
    backend = FakeBackend(us, load_us=lambda run: 5.0 + getattr(run.op, "num_aie_columns", 1))
    kind = type(registry())
    names, load = kind.names, kind.load
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tune_model, "measuring_backend", lambda name, dev: (backend, device(dev or "npu2")))
        patch.setattr(kind, "names", lambda self, group: [*names(self, group), *(["block"] if group == "models" else [])])
        patch.setattr(kind, "load", lambda self, group, name: Model if name == "block" else load(self, group, name))
        patch.setenv("NPU_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.chdir(tmp_path_factory.mktemp("here"))
        yield backend


@pytest.fixture
def cache():
    """The module's, in the place of each test's own."""


@pytest.fixture(scope="module")
def table(fake):
    """What one run wrote."""
    assert main(LINE) == 0
    return CostTable.load("costs_npu2.json")


def test_every_design_is_in_the_table_at_more_than_one_setting(table):
    """Each with what entering it takes, beside a design that is calibrated."""
    names = {key.partition("_")[0] for key in table.steps}
    assert {"GEMV", "SiLU", "Copy", "ElementwiseAdd"} <= names
    assert len(table.steps) > 6 and len(table.calibrations) == 3
    for cost in table.steps.values():
        assert cost.pair_us is not None and any(cost.beside in pair for pair in table.pairs())


def test_it_says_what_every_setting_sets_and_of_which_design(table):
    """So that who reads it need not try every setting there could be."""
    for cost in table.steps.values():
        assert cost.setting_of in table.steps
    assert len({json.dumps(dict(cost.tunables)) for cost in table.steps.values() if cost.design.startswith("GEMV(")}) > 1


def test_folded_designs_are_in_it_too(table):
    """A product with an activation in its cores is priced against the two apart."""
    folded = iron_fold()
    assert cost_key(folded, NPU2) in table.steps


def iron_fold():
    from iron_core.declare.chained import fold

    return fold(GEMV(M=256, K=64), SiLU(size=256))


def test_packs_that_it_would_choose_are_measured_as_one(fake, table):
    """Entering one takes what its members' loads take, and a member's step there what it takes alone: so this backend has it."""
    assert table.packs and any(runs.packs for runs in fake.lists)
    for cost in table.packs.values():
        assert len(cost.t_step_us) > 1 and cost.beside not in cost.t_step_us
        for key, us in cost.t_step_us.items():
            assert us == pytest.approx(table.steps[key].t_step_us)
        loads = [table.steps[key].pair_us for key in cost.t_step_us]
        assert cost.pair_us < sum(loads)
    tuned = Block().compile(x=(64,), y=(256,), backend="sim", dev="npu2", coresident=JointNarrowing(table))
    (version,) = tuned.versions.values()
    assert {frozenset(group.costs) for group in version.tuning.groups} <= {frozenset(cost.t_step_us) for cost in table.packs.values()}


def test_its_constants_are_the_backends(table):
    """By the triangle: dispatch, base and reset."""
    found = constants(table)
    assert (found.dispatch_us, found.base_us, found.reset_us) == pytest.approx((100.0, 20.0, 7.0))


def test_a_graph_is_narrowed_by_it(table):
    """The compiled version has other settings than before, says by how much less it should take, and computes the same."""
    plain, tuned = (
        Block().compile(x=(64,), y=(256,), backend="sim", dev="npu2", coresident=narrowing)
        for narrowing in (None, JointNarrowing(table))
    )
    (version,) = tuned.versions.values()
    assert version.tuning.predicted_us < version.tuning.baseline_us
    x, y = (np.linspace(-1, 1, n).astype(iron.bfloat16) for n in (64, 256))
    assert np.array_equal(plain(x, y, at=3), tuned(x, y, at=3))


def test_a_second_run_measures_nothing_and_adds_nothing(fake, table):
    """All of it is in the cache, and the table stays as it was."""
    asked = len(fake.lists)
    assert main(LINE) == 0
    assert len(fake.lists) == asked and CostTable.load("costs_npu2.json") == table


@pytest.mark.parametrize(("path", "says"), [("nowhere/t.json", "No such file"), (".", "Is a directory")])
def test_a_table_that_cannot_be_written_is_said_before_anything_is_measured(fake, table, capsys, path, says):
    before = len(fake.lists)
    assert main([*LINE, "--table", path]) == 2
    assert f"--table {path}: {says}" in capsys.readouterr().err and len(fake.lists) == before


def test_a_device_without_arrays_has_no_table(fake, capsys):
    assert main([*LINE, "--dev", "host", "--table", "t.json"]) == 2
    assert "--table: host has no arrays" in capsys.readouterr().err


def test_json_says_what_was_found(table, capsys):
    """Per design its steps, its settings, and its best."""
    assert main([*LINE, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["table"] == "costs_npu2.json" and not facts["left"]
    assert {row["steps"] for row in facts["designs"]} >= {1, 0}  # those of the graph, and those of its folds alone


def test_the_rest_of_the_line_is_the_models_own(table, tmp_path):
    """A checkpoint and its options; weights that nobody reads where they are random."""
    main([*LINE, "model.gguf", "--max-seq-len", "64"])
    assert Model.argv == ["model.gguf", "--max-seq-len", "64", "--backend", "fake", "--dev", "npu2"]
    main([*LINE, "--random-weights", "3", "--dispatch", "separate", "--table", str(tmp_path / "chain.json")])
    assert Model.argv == ["--backend", "fake", "--dev", "npu2", "--random-weights", "3", "--each-step"]


def test_a_table_of_another_mode_is_not_added_to(fake, table, monkeypatch):
    """It says what would be legal."""
    monkeypatch.setattr(fake, "mode", "balanced")
    with pytest.raises(CostError, match="in power mode performance; this is Fake NPU in balanced"):
        tune_model.tune_model("block", (), {**OPTIONS, "table": "costs_npu2.json"})


OPTIONS = dict(
    values=(), csv_file=None, folder=None, backend=None, dev=None, random_weights=None, dispatch=None, rounds=2, calls=1, settle=2,
    cutoff=1.5, repeats=3, exhaustive=4, context=None, remeasure=False, table=None, as_json=True,
)  # fmt: skip


@pytest.mark.parametrize("option", ["values", "csv_file", "folder"])
def test_options_of_an_operator_are_refused(fake, option):
    """By their name."""
    with pytest.raises(UsageError, match="is for an operator"):
        tune_model.tune_model("block", (), {**OPTIONS, option: ("x",)})


def test_a_model_without_a_graph_cannot_be_tuned(fake, monkeypatch):
    """One that is no family of iron-lm's may have no compiled()."""
    monkeypatch.delattr(Model, "compiled")
    with pytest.raises(UsageError, match=r"no compiled\(argv\)"):
        tune_model.tune_model("block", (), OPTIONS)


# -- operating points --------------------------------------------------------------------------------


def test_a_context_is_priced_at_the_middles_of_its_quarters():
    """Of equal weight, up to what the cache holds or to a given context."""
    op = made("MHA", num_heads=8, num_KV_heads=8, d=64, seq_len=1, kv_len=2048)
    found = points(op, ("kv_valid",), 1)
    assert [p.members["kv_valid"] for p in found] == [256, 768, 1280, 1792] and {p.weight for p in found} == {0.25}
    assert [p.label for p in points(op, ("kv_valid",), 1, 512)] == [f"kv_valid={n}" for n in (64, 192, 320, 448)]


def test_rows_of_a_chunk_are_whole():
    """What a call bounds by its own rows is not a context."""
    op = made("MHA", num_heads=8, num_KV_heads=8, d=64, seq_len=256, kv_len=2048)
    assert {p.members["valid"] for p in points(op, ("valid", "kv_valid"), 256)} == {256}
    (one,) = points(made("ReLU", size=1024), ("valid",), 1024)
    assert (one.label, one.members) == ("", {"valid": 1024})


def test_numbers_of_a_row_are_no_context():
    """What grows by 2048 numbers a row of the call is as long as its rows are."""
    op = made("ElementwiseAdd", size=64 * 2048)
    (one,) = points(op, ("valid",), 64, scales={"valid": 2048})
    assert one.members == {"valid": 64 * 2048}
    assert len(points(op, ("valid",), 64)) == 4


def test_outputs_of_a_long_context_are_compared_at_a_short_one():
    """Where time is simulated: how a setting rounds does not follow the context."""
    op = made("MHA", num_heads=8, num_KV_heads=8, d=64, seq_len=64, kv_len=2048)
    assert compared(op, {"valid": 64, "kv_valid": 1280}, 64) == {"valid": 64, "kv_valid": COMPARED}
    assert compared(op, {"valid": 64, "kv_valid": 256}, 64) == {"valid": 64, "kv_valid": 256}


def test_a_view_is_whole_and_an_offset_at_the_start():
    """A copy of rows that a call bounds moves all of them."""
    rows = iron.Pattern(0, (8, 64), (64, 1))
    copy = made("Copy", input_size=512, src=rows, dst=rows, src_axis=0, dst_axis=0)
    (one,) = points(copy, ("src_valid", "dst_valid", "out_offset"), 8)
    assert one.members == {"src_valid": 8, "dst_valid": 8, "out_offset": 0}


def test_a_ladder_has_no_rung_twice():
    """Short contexts have few."""
    assert ladder(2) == (1,) and ladder(4) == (1, 2, 3)
