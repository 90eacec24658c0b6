"""`check_model`: the model beside a measured run, tuned and untuned."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

import iron_core as iron
from iron_core.backends.measuring import Measured
from iron_core.errors import CallError, UnsupportedError
from iron_sim.backend import SimBackend
from iron_sim.timing.hardware import hardware
from iron_sim.timing.measure import step as simulated
from iron_tuner.check import check_model
from iron_tuner.cost_table import Calibration, CostTable, cost_key
from iron_tuner.errors import CostError
from iron_tuner.kinds import NarrowingKinds
from iron_tuner.narrowing import JointNarrowing
from iron_tuner.settings import Settings
from tests.tuner.tables import NPU2, SIZE, Turns, add, empty, fill, of_turns, silu, step

SHAPES = dict(x=(SIZE,), y=(SIZE,))


def version(narrowing, backend="sim", **options):
    return next(iter(Turns().compile(backend=backend, dev="npu2", coresident=narrowing, **SHAPES, **options).versions.values()))


def by_simulation(dispatch: str = "fused") -> CostTable:
    """A table of what the simulator's clock says of each setting by itself."""
    hw = hardware(NPU2)
    fused = dispatch == "fused"
    base = hw.entry_base.value if fused else hw.chain_switch.value
    started = hw.dispatch.value if fused else 0.0
    table = CostTable("npu2", dispatch)
    for a, b in ("ab", "bc", "ac"):
        table.add_calibration(a, b, attrs.evolve(
            Calibration(base + 10, started, "turbo", 1, 1, "2026-12-01"),
            **({"base_us": base, "reset_us": hw.reset.value} if fused else {}),
        ))  # fmt: skip
    for op in (add(), silu()):
        for variant in Settings(op, NPU2, SimBackend()):
            known = simulated(variant.op, NPU2)
            made = step(known.us, known.load_us if fused else known.switch_us - base, base)
            table.add_step(cost_key(variant.op, "npu2"), made)
    return table


def test_the_model_of_simulated_costs_is_the_simulated_run():
    """Steps and loads one by one add up to what the lists take: to a hundredth of a microsecond, packed and unpacked."""
    tuned = version(JointNarrowing(by_simulation(), NarrowingKinds(folds=False)))
    assert tuned.tuning.groups and tuned.tuning.chosen
    found = check_model(tuned)
    for one in (found.untuned, found.tuned):
        assert one.measured_us == pytest.approx(one.predicted_us, abs=0.01)
    assert found.tuned.measured_us < found.untuned.measured_us
    assert found.untuned.predicted_us == pytest.approx(tuned.tuning.baseline_us)
    assert found.tuned.predicted_us == pytest.approx(tuned.tuning.predicted_us)


class Told(SimBackend):
    """Says what a test says of each list."""

    def measure(self, lists, dev, timing):
        self.seen[:] = lists
        return [self.says[runs.name] for runs in lists]

    seen: list = []
    says: dict = {}


def test_it_measures_the_version_and_the_same_untuned():
    """Two lists, of all steps in order; packs are those of the version."""
    Told.says = {"untuned": Measured((900.0, 902.0)), "tuned": Measured((350.0,))}
    found = check_model(version(JointNarrowing(of_turns(), NarrowingKinds(folds=False)), Told()))
    untuned, tuned = Told.seen
    assert [untuned.name, tuned.name] == ["untuned", "tuned"] and untuned.packs == () and tuned.packs == (tuple(range(6)),)
    assert [type(run.op).__name__ for run in tuned.runs] == ["ElementwiseAdd", "SiLU"] * 3
    assert found.untuned.measured_us == 901.0 and found.untuned.noise_us is not None and found.tuned.noise_us is None
    assert found.tuned.ratio == pytest.approx(350 / 339)
    said = found.report().splitlines()
    assert said[0] == "untuned  predicted      813.0 us  measured      901.0 us  ratio 1.108"
    assert said[2] == "gain     predicted     58.3 %    measured     61.2 %"


def test_what_cannot_be_compared_is_refused():
    """A version nobody tuned, a design that is not in the model, a run that something disturbed, a backend that measures nothing."""
    with pytest.raises(CallError, match=r"this version was not tuned. Legal: one compiled with coresident=JointNarrowing"):
        check_model(version(None))
    with pytest.raises(CostError, match=r"SiLU\(size=2048\) is not in the model \(it is not in the cost table\); measure it first"):
        check_model(version(JointNarrowing(fill(empty(), add(), lambda op: step(8.0, 50.0)))))
    Told.says = {name: Measured((1.0,), disturbed="the NPU was busy") for name in ("untuned", "tuned")}
    with pytest.raises(CostError, match="the NPU was busy; measure again when it is over"):
        check_model(version(JointNarrowing(of_turns()), Told()))

    class Mute(SimBackend):
        measure = None

    with pytest.raises(UnsupportedError, match="backend sim measures nothing"):
        check_model(version(JointNarrowing(of_turns()), Mute()))


def test_calls_values_are_the_members_of_its_steps():
    """A bound that is not given goes as far as it can, an offset begins at 0."""
    from iron_ops_aie import Copy, ElementwiseAdd
    from iron_tuner.check import _members
    from iron_tuner.ways import Folding

    class Rows(iron.Graph):
        def __init__(self):
            self.kept = iron.state((4, 64, 64), name="kept")

        def body(self, x, *, n: iron.Scratchpad[np.int32], at: iron.Scratchpad[np.int32]):
            Copy(x, self.kept[at])
            return ElementwiseAdd(x[:n], x[:n])

    compiled = Rows().compile(backend="sim", dev="npu2", x=(64, 64), coresident=JointNarrowing(empty()))
    (one,) = compiled.versions.values()
    steps = Folding(one.tuning.asked).way(()).steps
    given = [{"n": 5, "at": 3}, {}]
    assert [list(_members(step, values).values()) for step in steps.values() for values in given] == [[3 * 4096], [0], [5 * 64], [64 * 64]]
