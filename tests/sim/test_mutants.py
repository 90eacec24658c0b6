"""A design that is a little wrong is caught: by the specification, by a limit, or by the simulator; or it moves the same data."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from iron_core import Pattern
from iron_core.array.build import build
from iron_core.array.words import number
from iron_core.devices import device
from iron_core.errors import IronError
from iron_ops_aie import GEMV, Copy, ElementwiseAdd
from iron_sim.machine import Machine
from iron_sim.run import regions_of

_spec = importlib.util.spec_from_file_location("mutants", Path(__file__).with_name("mutants.py"))
mutants = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(mutants)

DEV = device("npu2")
#: Designs and the calls made on each, one after another on one array: bounds that change show what is stale.
SUBJECTS = {
    "add": (ElementwiseAdd(size=16384, num_aie_columns=4, tile_size=256), [{"valid": 3072}, {"valid": 16384}]),
    "gemv": (GEMV(M=64, K=64, num_batches=6, repeat=2, num_aie_columns=2), [{}, {}]),
    "copy": (
        Copy(
            input_size=4096, output_size=2048, src=Pattern(0, (8, 128), (256, 1)), dst=Pattern(64, (8, 128), (128, 1)),
            num_channels=2,
        ),
        [{"in_offset": 128}, {"in_offset": 2048}],
    ),
}  # fmt: skip
SEEDS = (1, 2, 3)
CASES = [(name, mutator.__name__, seed) for name in SUBJECTS for mutator in mutants.MUTATORS for seed in SEEDS]


def run(design, op, calls):
    """Every call's outputs and the addresses its transfers move, on one machine."""
    rng = np.random.default_rng(0)
    machine = Machine(design.array)
    found = []
    for members in calls:
        tensors = type(op).test.draw(op, rng)
        for name in op.partial:
            tensors[name] = np.zeros(op.shape(name), op.format(name).dtype)
        regions = regions_of(design, tensors)
        numbers = {word.name: number(op, word, members) for word in design.sequence.words}
        machine.run(design.sequence, regions, numbers)
        for operand in op.outputs:
            region = regions[operand.name]
            found.append((region.data.tobytes(), region.mask.tobytes()))
    return found


def check(design):
    """What is asked of every design before it runs."""
    from iron_core.array import spec
    try:
        from iron_core.array import limits
    except ImportError:
        limits = None

    spec.check(design)
    if hasattr(limits, "check"):
        limits.check(design, DEV)


@pytest.fixture(scope="module")
def originals():
    made = {}
    for name, (op, calls) in SUBJECTS.items():
        op = op.resolved(DEV)
        design = build(op, DEV, calls[0])
        check(design)
        made[name] = (op, calls, design, run(design, op, calls))
    return made


def caught(design, op, calls, original):
    """The error a mutant raises, or "other data", or None where it does the same."""
    try:
        check(design)
    except IronError as error:
        return f"{type(error).__name__}: {error}"
    try:
        found = run(design, op, calls)
    except IronError as error:
        return f"{type(error).__name__}: {error}"
    return "other data" if found != original else None


@pytest.mark.parametrize(("name", "mutator", "seed"), CASES)
def test_a_mutant_is_caught(originals, name, mutator, seed):
    op, calls, design, original = originals[name]
    mutant = mutants.pick(getattr(mutants, mutator), design, seed)
    if mutant is None:
        pytest.skip("the design has no place for it")
    reason = caught(mutant, op, calls, original)
    if reason is None:
        assert (name, mutator) in SAME, "neither caught nor known to move the same data"


#: Mutants that may move the same data: what a kernel computes twice into one place, a + b and b + a, and a fill that is freed
#: when a result that needed all of it was awaited.
SAME = {("add", "call_twice"), ("gemv", "call_twice"), ("add", "arguments_swapped"), ("gemv", "freed_instead_of_awaited")}


def test_there_are_enough_of_them(originals):
    """At least sixty of the mutants in the list have a place in some design."""
    made = sum(mutants.pick(getattr(mutants, m), originals[n][2], s) is not None for n, m, s in CASES)
    assert made >= 60
