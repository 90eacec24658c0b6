"""Every test case of the operators that have an array, on both devices: equal to its tile references in every bit.

And within the gate of its reference; a case that no array takes is refused by the keyword and the rule.
"""

from __future__ import annotations

import itertools
import json
import re

import attrs
import numpy as np
import pytest

from iron_core import Pattern
from iron_core.declare.cases import cases
from iron_core.declare.testing import Case
from iron_core.devices import device
from iron_ops_aie import ReLU, SiLU
from iron_sim.catalog import Outcome, outcome, outcomes
from iron_sim.refusals import by_rule
from tests.catalog import ARRAYS, OPERATORS, PLACES, families, named

#: The catalogs, both of which have a GEMM: what there is beside it is a mistake, and so is what is missing.
CATALOG = """
AXPY CausalConv1d Clamp CombineExperts Copy DeltaGates DepthwiseConv1d Dequant ElementwiseAdd ElementwiseMax ElementwiseMul Emit GELU GEMM
GEMV GatedDeltaChunk GatedDeltaStep GatedExperts GatherWords L2Norm LayerNorm LeakyReLU Limbs Log MHA Magnitude Merge PatchPositions
Quantize QuantizeRows RMSNorm ReLU Repeat Resample ResampleTaps RoPE Route RowwiseAdd RowwiseMul Sample Scale SiLU Sigmoid SoftCap Softmax
Softplus Tanh Transpose DequantBFP GEMM
""".split()
#: Those that have no array.
HOST_ALONE = {"PagedMHA", "ScatterRows"}
DEVICES = ("npu1", "npu2")
CASES = list(cases(ARRAYS, DEVICES))
#: What every refusal has: a keyword and its value (or the view it belongs to), and what would be legal.
KEYWORD = re.compile(r"\b\w+=|\b(src|dst)\b")
LEGAL = re.compile(r"[Ll]egal|must be|may have|there (is|are)")


@pytest.fixture(scope="module")
def ran():
    """Rows so far, by operator and device; a case is simulated once."""
    return {}


@pytest.mark.parametrize(("cls", "case", "dev"), CASES, ids=named)
def test_a_case_equals_its_tile_references(ran, cls, case, dev):
    """Not one number differs; or the case is refused in words."""
    found = ran[cls, case.id, dev] = outcome(cls, case, dev)
    assert not found.failure, found.failure
    if found.refused:
        assert found.refused.startswith(cls.__name__)
        assert KEYWORD.search(found.refused), found.refused
        assert LEGAL.search(found.refused), found.refused
    else:
        assert found.bits == 0 and found.compared > 0
        assert found.ratio <= 1 and 0 < found.columns <= device(dev).columns


@pytest.mark.parametrize(("cls", "dev"), PLACES, ids=named)
def test_enough_cases_run(ran, cls, dev):
    """Not everything is refused: three at least, and whatever is said to have an array."""
    for _, case, _ in cases([cls]):
        if (cls, case.id, dev) not in ran:
            ran[cls, case.id, dev] = outcome(cls, case, dev)
    taken = {case for (c, case, d), found in ran.items() if (c, d) == (cls, dev) and not found.refused and found.compared}
    assert len(taken) >= 3 and taken >= {case.id for _, case, _ in cases([cls]) if case.lower}


def test_a_refused_case_that_an_array_is_to_take_is_a_failure():
    """`lower=True` says that there is one."""
    fields = dict(size=64, T=np.float32)
    assert outcome(SiLU, Case(**fields), "npu2").refused.startswith("SiLU: T=float32")
    found = outcome(SiLU, Case(**fields, lower=True), "npu2")
    assert found.failure.startswith("an array is to take it (lower=True), but: SiLU: T=float32") and not found.refused


def test_an_array_is_for_both_families_or_says_which():
    """npu1 has no block floating point."""
    assert {cls.__name__: families(cls) for cls in ARRAYS if families(cls) != DEVICES} == {"DequantBFP": ("npu2",)}


def test_every_operator_of_the_catalog_has_an_array():
    """But for the CPU's own: the registry has these and no others; what the walk above covers is found there, not listed."""
    assert sorted(cls.__name__ for cls in ARRAYS) == sorted(CATALOG)
    assert {cls.__name__ for cls in OPERATORS} - set(CATALOG) == HOST_ALONE
    assert {cls for cls, _, _ in CASES} == set(ARRAYS)
    assert len(CASES) == len({(cls, case.id, dev) for cls, case, dev in CASES}) >= 300


@pytest.mark.parametrize("dev", DEVICES)
def test_refusals_are_counted_by_their_rule(dev):
    """Whatever operator refuses, and whatever the numbers."""
    said = [outcome(cls, case, dev).refused for cls in (SiLU, ReLU) for _, case, _ in cases([cls])]
    counted = by_rule(filter(None, said))
    assert sum(counted.values()) == sum(map(bool, said))
    assert list(counted.values()) == sorted(counted.values(), reverse=True)
    assert counted["T=..; its array computes on bfloat16."] == 10
    assert counted["size=.. is not whole lines of tile_size=.. over num_aie_columns=.. x num_channels=.., N in all."] == 2


def test_other_numbers_give_the_same_answer():
    """Nothing depends on the seed that the table uses."""
    case = Case(size=1024)
    assert [outcome(SiLU, case, "npu2", seed).failure for seed in (1, 2)] == ["", ""]


def test_rows_come_case_by_case():
    found = list(itertools.islice(outcomes([SiLU], ["npu1", "npu2"]), 4))
    assert [(r.case, r.dev) for r in found] == [("size64", "npu1"), ("size64", "npu2"), ("size1000", "npu1"), ("size1000", "npu2")]
    assert all(isinstance(r, Outcome) and r.operator == "SiLU" for r in found)


# -- a table that can fail -------------------------------------------------------------------------


class OneOff(SiLU):
    """Its composition is wrong in one number."""

    def composed(self, *inputs):
        out = super().composed(*inputs)
        out.reshape(-1).view(np.uint16)[17] ^= 1
        return out


class Wrong(SiLU):
    """Its array is as composed, and computes something else than its reference."""

    def reference(self, x):
        return super().reference(x) + 1


class Short(SiLU):
    """Its sequence forgets an input."""

    def sequence(self, rt):
        rt.preamble()
        for lane in range(self.num_aie_columns):
            each = self.size // self.num_aie_columns
            rt.drain("y", lane, Pattern.whole((each,), lane * each), wait=True)


def test_a_number_that_differs_is_counted():
    found = outcome(OneOff, Case(size=1024), "npu2")
    assert found.bits == 1 and found.failure == "1 of 1024 numbers differ from the composed tile references"


def test_a_gate_that_is_left_is_told():
    found = outcome(Wrong, Case(size=1024), "npu2")
    assert found.bits == 0 and "Wrong.y" in found.failure


def test_an_array_that_stops_is_told():
    found = outcome(Short, Case(size=1024), "npu2")
    assert found.failure.startswith("Short on npu2 cannot go on:") and found.compared == 0


class Unset(SiLU):
    """An array of its own, so that no other is found in its place."""


def test_a_design_that_is_not_well_formed_is_no_refusal(monkeypatch):
    """Here, because its cores do not set how they round."""
    monkeypatch.setattr("iron_core.array.worker.set_rounding", lambda mode: None)
    found = outcome(Unset, Case(size=1024), "npu2")
    assert "before the rounding mode is set" in found.failure and not found.refused


def test_a_row_is_plain_data():
    """It is printed as JSON."""
    json.dumps(attrs.asdict(outcome(SiLU, Case(size=1024), "npu1")))
