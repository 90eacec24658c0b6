"""Run lists on simulated time: what a tuner is told by `SimBackend`. Equal lists take equal times, so every round is one figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from iron_core.array.build import build
from iron_core.array.words import number
from iron_core.backends.measuring import Measured, Run, RunList, Timing, drawn
from iron_core.declare.formats import PackedArray
from iron_core.devices import Device
from iron_core.errors import IronError, UnsupportedError
from iron_sim.regions import whole
from iron_sim.run import simulate
from iron_sim.timing.estimate import estimate as estimated
from iron_sim.timing.hardware import hardware
from iron_sim.timing.measure import Step, step, total_us

#: A run of at most so many numbers is really simulated; of a larger one its tile references are composed, which gives the same bits.
SMALL = 1 << 15


def measure(lists: Sequence[RunList], dev: Device, timing: Timing) -> list[Measured]:
    """See `iron_core.backends.measuring.Measuring`."""
    found = []
    for runs in lists:
        timed: dict[Any, Step] = {}  # a list is mostly one run many times over
        steps = []
        for index, run in enumerate(runs.runs):
            key = (id(run.op), *sorted(run.members.items()))
            if key not in timed:
                timed[key] = _step(runs, index, dev)
            steps.append(timed[key])
        us = total_us(steps, runs, hardware(dev))
        found.append(Measured((us,) * max(timing.rounds, 1), Outputs(runs, dev)))
    return found


def estimate(run: Run, dev: Device) -> float:
    """See `iron_core.backends.measuring.Estimating`."""
    try:
        op = run.op.resolved(dev)
        design, kernels = build(op, dev, run.members)
        numbers = {word.name: number(op, word, run.members) for word in design.sequence.words}
        return estimated(design, kernels, None, numbers).us
    except UnsupportedError:
        raise
    except IronError as error:
        raise UnsupportedError(str(error)) from error


def _step(runs: RunList, index: int, dev: Device) -> Step:
    run: Run = runs.runs[index]
    what = f"{runs.name}, run {index}"
    if run.tunables:
        raise UnsupportedError(f"{what}: tunables {', '.join(run.tunables)}; sim has no lowering of its own. Legal: none.")
    try:
        return step(run.op, dev, run.members)
    except UnsupportedError:
        raise
    except IronError as error:
        raise UnsupportedError(f"{what}: {error}") from error


class Outputs(Mapping[tuple[int, str], np.ndarray]):
    """What runs write, by (run, operand), made when it is asked for: a list of many equal runs is asked for one, or for none."""

    def __init__(self, runs: RunList, dev: Device) -> None:
        self._runs = runs
        self._dev = dev
        self._made: dict[int, dict[str, np.ndarray]] = {}

    def __iter__(self) -> Iterator[tuple[int, str]]:
        for index, run in enumerate(self._runs.runs):
            yield from ((index, operand.name) for operand in run.op.outputs if operand.present(run.op))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getitem__(self, key: tuple[int, str]) -> np.ndarray:
        index, name = key
        if index not in self._made:
            if not 0 <= index < len(self._runs.runs):
                raise KeyError(key)
            self._made[index] = _outputs(self._runs, index, self._dev)
        return self._made[index][name]


def _outputs(runs: RunList, index: int, dev: Device) -> dict[str, np.ndarray]:
    """What a run writes, as far as its bounds go."""
    run = runs.runs[index]
    op = run.op.resolved(dev)
    inputs = drawn(runs, index)
    short = op.bounded(**op.limits(run.members)) if run.members else op
    kept = {name: op.format(name).zeros(op.shape(name)) for name in op.partial}
    written = [operand.name for operand in op.outputs if operand.present(op)]
    if sum(int(np.prod(op.shape(name))) for name in op.present) <= SMALL:
        given = {name: whole(op, name, tensor) for name, tensor in inputs.items()}
        made, _, _ = simulate(op, dev, {**kept, **given}, dict(run.members))
        return {name: _cut(made[name], short.shape(name)) for name in written}
    found = short.composed(*(inputs.get(operand.name) for operand in op.inputs), **kept)
    tensors = found if isinstance(found, tuple) else (found,)
    return {name: np.asarray(one.data if isinstance(one, PackedArray) else one) for name, one in zip(written, tensors, strict=True)}


def _cut(array: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    return array[tuple(slice(n) for n in shape)] if array.ndim == len(shape) else array
