"""`ArrayProfile`: where the time of runs on arrays went, simulated or real, dispatch by dispatch, and what they moved."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from iron_core.backends.run_profile import UNNAMED, Phase, StepTimes, kind
from iron_core.errors import CallError
from iron_core.files import write_whole
from iron_core.image.array_step import ArrayStep


@attrs.frozen
class WholeCall:
    """A call that is one dispatch, in the place of its steps: nobody but the device sees them apart."""

    name: str
    operator: str = "full ELF"
    operands: dict[str, Any] = attrs.field(factory=dict)
    category: str = ""


@attrs.frozen
class TimedStep:
    """A step of a pass: seconds of time.perf_counter's clock, and bytes that it moved, those of residents apart."""

    step: ArrayStep | WholeCall
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


class ArrayProfile:
    """The `RunProfile` of a backend of arrays: see `iron_core.backends.run_profile`."""

    limits = None

    def __init__(self, executables: Mapping[str, Any], note: str) -> None:
        self.note = note
        self.passes: dict[str, list[TimedPass]] = {name: [] for name in executables}

    def phases(self) -> list[Phase]:
        """One for every executable that ran, in the order given."""
        return [_phase(name, passes) for name, passes in self.passes.items() if passes]

    def step_times(self) -> Iterator[tuple[ArrayStep | WholeCall, float]]:
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


@contextlib.contextmanager
def recorded(executables: Mapping[str, Any], note: str) -> Iterator[ArrayProfile]:
    """What executables with a `recording`, by name, note in it inside the block. CallError inside another such block for one of them."""
    for name, executable in executables.items():
        if executable.recording is not None:
            raise CallError(f"{name} is being recorded already; one recording at a time.")
    found = ArrayProfile(executables, note)
    try:
        for name, executable in executables.items():
            executable.recording = found.passes[name]
        yield found
    finally:
        for executable in executables.values():
            executable.recording = None
