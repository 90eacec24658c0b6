"""Estimates agree with events: within a tenth, for what operators' arrays do, on both devices."""

from __future__ import annotations

from functools import cache

import pytest

from iron_core import bfloat16
from iron_core.array.build import build
from iron_core.array.fit import fit
from iron_core.array.words import number
from iron_core.declare.cases import cases
from iron_core.devices import device
from iron_core.errors import IronError
from iron_ops_aie import GEMV, Copy, ElementwiseAdd
from iron_ops_flm import DequantBFP
from iron_sim.errors import SimulationError
from iron_sim.timing.estimate import RESOURCES, estimate
from iron_sim.timing.events import timed
from tests.catalog import PLACES, named

#: How far an estimate may be from the events.
WITHIN = 1.1


def taken(cls, dev):
    """(case, operator) of every case that an array takes."""
    for _, case, _ in cases([cls]):
        try:
            op = cls(**case.fields).resolved(device(dev))
            fit(build(op, dev, case.bounds).design)
        except IronError:
            continue
        yield case, op


def both(op, dev, members):
    """Microseconds by estimate and by events; None for the latter where a core follows data."""
    design, kernels = build(op, dev, members)
    numbers = {word.name: number(op, word, members) for word in design.sequence.words}
    found = estimate(design, kernels, fit(design), numbers)
    try:
        return found.us, timed(design, kernels, numbers, placement=fit(design)).us
    except SimulationError:
        return found.us, None


def apart(op, dev, members):
    """How far the two are from each other, 1 and more."""
    ours, events = both(op, dev, members)
    return 1.0 if events is None else max(ours / events, events / ours)


@pytest.mark.parametrize(("cls", "dev"), PLACES, ids=named)
def test_a_case_of_every_operator(cls, dev):
    case, op = next(taken(cls, dev))
    assert apart(op, dev, case.bounds) <= WITHIN


@pytest.mark.slow
@pytest.mark.parametrize(("cls", "dev"), PLACES, ids=named)
def test_every_case_of_the_catalog(cls, dev):
    found = {case.id: apart(op, dev, case.bounds) for case, op in taken(cls, dev)}
    assert not {case: ratio for case, ratio in found.items() if ratio > WITHIN}


@cache
def gathered(rows, feeds):
    op = Copy(gather=True, table_rows=65536, rows=rows, input_size=65536 * 512, num_channels=feeds, X=bfloat16).resolved("npu2")
    return both(op, "npu2", {})


@pytest.mark.parametrize("feeds", [1, 4])
def test_gathers_whose_batches_wait_for_tokens(feeds):
    ours, events = gathered(320, feeds)
    assert max(ours / events, events / ours) <= WITHIN


def test_more_feeds_gather_faster():
    assert gathered(320, 4)[0] < 0.7 * gathered(320, 1)[0]


def told(op, dev="npu2", **members):
    op = op.resolved(device(dev))
    design, kernels = build(op, dev, members)
    return estimate(design, kernels, fit(design), {word.name: number(op, word, members) for word in design.sequence.words})


def test_what_binds_is_said():
    """A copy by all columns waits for the memory, an addition of one tile for the controller or the way through the array."""
    wide, small = told(Copy(input_size=1 << 22, num_channels=8)), told(ElementwiseAdd(size=64))
    assert wide.bound == "fabric" and wide.parts["fabric"] > 0.9 * wide.us
    assert small.bound in ("controller", "fill")
    for found in (wide, small):
        assert set(found.parts) == {*RESOURCES, "fill"}
        assert found.us == pytest.approx(max(found.parts[name] for name in RESOURCES) + found.parts["fill"])


def test_what_there_is_room_for_is_read_before_anything_is_written():
    """All that this array reads goes ahead of what it writes, which is more: neither slows the other down."""
    assert apart(DequantBFP(N=1024, K=512).resolved(device("npu2")), "npu2", {}) <= WITHIN


def test_a_bound_extent_shortens_it():
    op = GEMV(M=8192, K=1024)
    assert told(op, valid=1024).us < 0.3 * told(op, valid=8192).us


def test_the_slower_device_takes_longer():
    assert told(GEMV(M=2048, K=2048), "npu1").us > told(GEMV(M=2048, K=2048)).us
