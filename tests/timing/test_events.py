"""A run as events does, without data, what the machine that moves data does: as many calls, objects and numbers, everywhere."""

from __future__ import annotations

import numpy as np
import pytest

from iron_core.array.build import build
from iron_core.array.fit import fit
from iron_core.array.words import number
from iron_core.declare.cases import cases
from iron_core.devices import device
from iron_core.errors import IronError
from iron_ops_aie import ResampleTaps
from iron_sim.errors import SimulationError
from iron_sim.machine import Machine
from iron_sim.regions import regions_of, whole
from iron_sim.timing.events import timed
from tests.catalog import PLACES, named


def designs(cls, dev, bench):
    """(case, operator, design, kernels) of an operator's cases that its array takes."""
    for _, case, _ in cases([cls], bench=bench):
        try:
            op = cls(**case.fields).resolved(device(dev))
            design, kernels = build(op, dev, case.bounds)
            fit(design)
        except IronError:
            continue
        yield case, op, design, kernels


def compared(case, op, design, kernels):
    """Run a case both ways: (calls by core, numbers by stream) of each, and the time of the second."""
    machine = Machine(design.array, kernels, fit(design), follow=True)
    short = case.bounded(op)
    drawn = type(op.base).test.draw(short, np.random.default_rng(0))
    regions = regions_of(design, _whole(op, drawn))
    numbers = {word.name: number(op, word, case.bounds) for word in design.sequence.words}
    machine.run(design.sequence, regions, numbers)
    run = timed(design, kernels, numbers, followed={core.name: core.followed for core in machine.cores})
    moved = ({core.name: core.calls for core in machine.cores}, {flow.name: flow.moved for flow in machine.flows})
    return moved, (dict(run.calls), dict(run.moved)), run.us


def _whole(op, drawn):
    """A case's tensors as they are in memory, and what outputs written in part hold before."""
    kept = {name: op.format(name).zeros(op.shape(name)) for name in op.partial}
    return {**kept, **{name: whole(op, name, tensor) for name, tensor in drawn.items()}}


@pytest.mark.parametrize("cls, dev", PLACES, ids=named)
def test_one_case_of_every_operator_makes_the_same_calls_and_moves_the_same_numbers(cls, dev):
    case, op, design, kernels = next(designs(cls, dev, False))
    moved, counted, us = compared(case, op, design, kernels)
    assert counted == moved
    assert us > 0


@pytest.mark.slow
@pytest.mark.parametrize("cls, dev", PLACES, ids=named)
def test_every_case_makes_the_same_calls_and_moves_the_same_numbers(cls, dev):
    for case, op, design, kernels in designs(cls, dev, True):
        moved, counted, _ = compared(case, op, design, kernels)
        assert counted == moved, case.id


def test_a_core_that_follows_data_is_refused_without_it():
    _, op, design, kernels = next(designs(ResampleTaps, "npu2", False))
    with pytest.raises(SimulationError, match="follows a number that data gives"):
        timed(design, kernels, {word.name: number(op, word, {}) for word in design.sequence.words})
