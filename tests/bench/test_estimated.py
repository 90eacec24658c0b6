"""Tuning without a run: estimates as a cost table, and versions that are decided by it."""

from __future__ import annotations

import numpy as np
import pytest

import iron_core as iron
from bench import estimated
from bench.estimated import MODE, Estimated, table
from iron_core import bfloat16
from iron_ops_aie import GEMV, ElementwiseAdd, SiLU
from iron_sim.timing.price import price
from iron_tuner.cost_table import CostTable
from iron_tuner.model import Loads, constants


class Gated(iron.Graph):
    """A product, a step that folds into it, and a residual."""

    def __init__(self):
        self.matrix = np.zeros((512, 256), bfloat16)

    def body(self, x, residual):
        return ElementwiseAdd(SiLU(GEMV(self.matrix, x)), residual)




def compiled(**options):
    compiled = Gated().compile(x=256, residual=512, backend="sim", **options)
    (version,) = compiled.versions.values()
    return version


@pytest.fixture(scope="module")
def decided():
    """The version as it was decided, what decided it, the tables it was decided by, and the graphs that were to be changed."""
    tables: list[CostTable] = []
    changed = []

    def kept(asked, values):
        tables.append(table(asked, values))
        return tables[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(estimated, "table", kept)
        decides = Estimated({}, lambda traced: changed.append(traced) or traced)
        version = compiled(dev="npu2", fold=True, coresident=decides)
    return version, decides, tables, changed


def faster(before, after, decides):
    tuned = price(after.image).total_us
    assert tuned <= price(before.image).total_us
    # The model's time is the price, but for what places change.
    assert decides.tuning.predicted_us == pytest.approx(tuned, rel=0.02)


def test_what_is_decided_is_never_slower(decided):
    version, decides, _, _ = decided
    faster(compiled(dev="npu2", fold=True), version, decides)


@pytest.mark.slow
@pytest.mark.parametrize(("dev", "fold"), [("npu2", False), ("npu1", True)])
def test_nor_on_another_device_or_unfolded(dev, fold):
    decides = Estimated({})
    faster(compiled(dev=dev, fold=fold), compiled(dev=dev, fold=fold, coresident=decides), decides)


def test_a_table_has_every_design_with_its_load(decided):
    (found,) = decided[2]
    assert {key.partition("_")[0] for key in found.steps} == {"GEMV"} and found.pmode == MODE  # both others are folded into it
    loads = Loads(found)
    assert all(loads[key] > 0 for key in found.steps)
    assert constants(found).base_us > 0


def test_the_graph_may_be_changed_first(decided):
    assert [len(traced.steps) for traced in decided[3]] == [3]
