"""Timing run lists on the NPU: in turns within every round, alone on it, in a power mode."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from iron_core.backends.listed_runs import ListedRuns, written
from iron_core.backends.measuring import Measured, RunList, Timing
from iron_core.declare.identity import array_key
from iron_core.devices import Device
from iron_core.errors import IronError, UnsupportedError
from iron_core.image.arena import append
from iron_core.image.packaging import decide, each_step
from iron_core.image.plan import Plan
from iron_npu.runtime.device import Npu
from iron_npu.runtime.power import alone, power_mode


def measure(backend: Any, npu: Npu, lists: Sequence[RunList], dev: Device, timing: Timing) -> list[Measured]:
    """See `iron_core.backends.measuring.Measuring`. A call is timed from handing it over to its end, by the host's clock; what every call
    takes besides is in both lists of a difference."""
    with alone(npu), power_mode(npu, backend.pmode):
        loaded = [_Loaded(backend, runs, dev) for runs in lists]
        rounds: list[list[float]] = [[] for _ in lists]
        going = list(range(len(lists)))
        for number in range(timing.rounds):
            first = number % max(len(going), 1)
            for index in going[first:] + going[:first]:
                rounds[index].append(loaded[index].median_us(timing.calls))
            if number + 1 >= timing.settle:
                going = _contenders(going, rounds, lists, timing.cutoff)
        return [
            Measured(tuple(figures), one.outputs() if runs.compared else {})
            for figures, one, runs in zip(rounds, loaded, lists, strict=True)
        ]


def _contenders(going: list[int], rounds: list[list[float]], lists: Sequence[RunList], cutoff: float) -> list[int]:
    """Those that are not far behind the fastest of as many runs."""
    best: dict[int, float] = {}
    for i in going:
        count = len(lists[i].runs)
        best[count] = min(best.get(count, float("inf")), statistics.median(rounds[i]))
    return [i for i in going if statistics.median(rounds[i]) <= cutoff * best[len(lists[i].runs)]]


class _Loaded:
    """A run list on the device: its operands are weights and states there, so a call moves nothing between host and device."""

    def __init__(self, backend: Any, runs: RunList, dev: Device) -> None:
        for number, run in enumerate(runs.runs):
            if run.tunables:
                given = ", ".join(run.tunables)
                raise UnsupportedError(f"{runs.name}, run {number}: tunables {given}; npu has no lowering of its own. Legal: none.")
        self._listed = ListedRuns(runs)
        banks: list[int] = []
        residents = tuple(attrs.evolve(one, spot=append(one.nbytes, banks)) for one in self._listed.residents)
        version = self._listed.version()
        packaging = decide(dev, version.values, boundaries=each_step if runs.dispatch == "separate" else None)
        plan = Plan(runs.name, backend.name, dev.name, packaging, (version,), residents, (), tuple(banks))
        packs = [[array_key(runs.runs[i].op.resolved(dev)) for i in pack] for pack in runs.packs]
        try:
            image = backend.compile(plan, (), packs)
        except UnsupportedError:
            raise
        except IronError as error:
            raise UnsupportedError(f"{runs.name}: {error}") from error
        self._memory = backend.memory(plan)
        self._run = backend.load(image, self._memory).run
        for name, array in self._listed.starts.items():
            self._memory.write(name, array)
        self._call()  # the first gives the device what it holds

    def median_us(self, calls: int) -> float:
        return statistics.median(self._call() for _ in range(max(calls, 1)))

    def outputs(self) -> dict[tuple[int, str], np.ndarray]:
        """What one call on what states held before writes, as far as its bounds go."""
        for name, array in self._listed.starts.items():
            self._memory.write(name, array)
        self._call()
        return written(self._listed.steps, self._listed.values, self._memory.read)

    def _call(self) -> float:
        begin = time.perf_counter()
        self._run([], [], self._listed.values)
        return (time.perf_counter() - begin) * 1e6
