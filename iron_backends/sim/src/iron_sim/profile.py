"""`SimProfile`: where the simulator's own time went, step by step, and what crossed the arrays' shims."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from iron_core.backends.run_profile import UNNAMED, Phase, StepTimes, kind
from iron_core.files import write_whole
from iron_core.image.array_step import ArrayStep


@attrs.frozen
class TimedStep:
    """A step of a pass: seconds of time.perf_counter's clock, and bytes that crossed the shim, those of residents apart."""

    step: ArrayStep
    begin: float
    end: float
    nbytes: int
    resident: int


@attrs.frozen
class TimedPass:
    """One call: when it began and ended, with which per-call values, and its steps in order."""

    begin: float
    end: float
    values: dict[str, int]
    steps: tuple[TimedStep, ...]


class SimProfile:
    """The `RunProfile` of the simulator: see `iron_core.backends.run_profile`."""

    limits = None
    note = "times are the simulator's own, on this machine; they say nothing of the array's"

    def __init__(self, executables: Mapping[str, Any]) -> None:
        self.passes: dict[str, list[TimedPass]] = {name: [] for name in executables}

    def phases(self) -> list[Phase]:
        """One for every executable that ran, in the order given."""
        return [_phase(name, passes) for name, passes in self.passes.items() if passes]

    def step_times(self) -> Iterator[tuple[ArrayStep, float]]:
        """Every step that ran, and its seconds, a pass on average."""
        for passes in self.passes.values():
            for steps in zip(*(one.steps for one in passes), strict=True):
                yield steps[0].step, sum(step.end - step.begin for step in steps) / len(steps)

    def write_trace(self, path: str | Path) -> None:
        """Every pass and step as JSON that Perfetto and chrome://tracing open."""
        events = []
        for name, passes in self.passes.items():
            for one in passes:
                spans = [(name, one.begin, one.end, one.values)]
                spans += [(s.step.name, s.begin, s.end, {"bytes": s.nbytes}) for s in one.steps]
                for what, begin, end, args in spans:
                    events.append(dict(ph="X", pid=1, tid=0, name=what, ts=begin * 1e6, dur=(end - begin) * 1e6, args=args))
        write_whole(path, json.dumps({"displayTimeUnit": "ms", "traceEvents": sorted(events, key=lambda event: event["ts"])}))

    def as_dict(self) -> dict[str, Any]:
        """The note and the phases as plain data."""
        return {"limits": None, "note": self.note, "phases": [attrs.asdict(phase) for phase in self.phases()]}


def _phase(name: str, passes: list[TimedPass]) -> Phase:
    n = len(passes)
    sums: dict[str, list[float]] = {}
    parts: dict[str, list[float]] = {}
    for one in passes:
        for step in one.steps:
            row = sums.setdefault(kind(step.step.operator, step.step.operands), [0.0, 0.0, 0.0])
            part = parts.setdefault(step.step.category or UNNAMED, [0.0, 0.0, 0.0])
            for i, more in enumerate((1, step.end - step.begin, step.nbytes)):
                row[i] += more
                part[i] += more

    def times(table: dict[str, list[float]]) -> list[StepTimes]:
        return [StepTimes(label, steps / n, seconds / n, seconds / n, nbytes / n) for label, (steps, seconds, nbytes) in table.items()]

    resident = sum(step.resident for one in passes for step in one.steps) / n
    return Phase.of(name, [(one.begin, one.end) for one in passes], times(sums), resident, categories=times(parts))
