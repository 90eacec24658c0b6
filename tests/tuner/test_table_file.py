"""The file of a cost table that several tuners add to."""

from __future__ import annotations

import attrs
import pytest

from iron_tuner.cost_table import Calibration, CostTable, PackCost, StepCost
from iron_tuner.errors import CostError
from iron_tuner.probe import Probe
from iron_tuner.table_file import TableFile
from tests.tuner.fake import FakeBackend
from tests.tuner.operators import NPU2

COST = StepCost(10.0, 99.0, True, True, "performance", 8, 50, "2026-12-01")


def probe(**how):
    return Probe(FakeBackend(lambda run: 1.0, **how), NPU2)


def test_what_two_tuners_find_is_all_there(tmp_path):
    """Each adds to what the file has by then, so neither's is lost whoever writes last."""
    path = tmp_path / "costs.json"
    one, other = TableFile(path, probe()), TableFile(path, probe())
    one.table.add_step("GEMV_a", COST)
    one.table.add_calibration("a", "b", Calibration(40.0, 45.0, "performance", 8, 50, "2026-12-01"))
    one.write()
    other.table.add_step("GEMV_b", COST)
    other.table.add_pack(("GEMV_a", "GEMV_b"), PackCost("a", 50.0, {"GEMV_a": 10.0, "GEMV_b": 10.0}, "performance", 8, 50, "2026-12-01"))
    other.write()
    one.write()
    found = CostTable.load(path, "npu2", "fused")
    assert set(found.packs) == {"GEMV_a|GEMV_b"}
    assert set(found.steps) == {"GEMV_a", "GEMV_b"} and set(found.calibrations) == {"a|b"}
    assert found.platform == "Fake NPU"


def test_what_is_found_again_takes_the_place_of_what_was(tmp_path):
    """And what was of no interest goes with the first that is written."""
    path = tmp_path / "costs.json"
    first = TableFile(path, probe())
    first.table.add_step("GEMV_a", COST)
    first.table.add_step("GEMV_b", COST)
    first.write()
    second = TableFile(path, probe())
    second.table.add_step("GEMV_a", attrs.evolve(COST, t_step_us=5.0))
    second.write()
    assert {key: cost.t_step_us for key, cost in CostTable.load(path).steps.items()} == {"GEMV_a": 5.0, "GEMV_b": 10.0}
    anew = TableFile(path, probe(), anew=True)
    anew.table.add_step("GEMV_c", COST)
    anew.write()
    anew.table.add_step("GEMV_d", COST)
    anew.write()
    assert set(CostTable.load(path).steps) == {"GEMV_c", "GEMV_d"}


@pytest.mark.parametrize(
    "there, words",
    [
        (CostTable("npu1"), "of device npu1, and npu2 is asked for"),
        (CostTable("npu2", "separate"), "of packaging separate, and fused is asked for"),
        (CostTable("npu2", platform="Another"), "is of Another in power mode ; this is Fake NPU in performance. Legal: --remeasure"),
        (CostTable("npu2", steps={"a": attrs.evolve(COST, pmode="balanced")}), "in power mode balanced; this is Fake NPU in performance"),
    ],
)
def test_figures_of_something_else_are_not_added_to(tmp_path, there, words):
    """It is said before anything is measured; with --remeasure the file is a new one."""
    path = tmp_path / "costs.json"
    there.save(path)
    with pytest.raises(CostError, match=words):
        TableFile(path, probe())
    TableFile(path, probe(), anew=True).write()
    assert CostTable.load(path, "npu2", "fused").steps == {}
