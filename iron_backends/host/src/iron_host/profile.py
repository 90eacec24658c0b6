"""`HostProfile`: where the time of recorded runs went, by kind of step, beside what the machine can do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from iron_core.backends.run_profile import UNNAMED, Limits, Phase, StepTimes, kind
from iron_core.declare.affine import bounded_shape
from iron_core.image.plan import PlanStep
from iron_core.lowering import taken
from iron_host import trace
from iron_host.kernel_call import HostLowering
from iron_host.limits import measure, read_rate
from iron_host.parts import written
from iron_host.recording import Pass, Recording, record
from iron_host.runlist import RunStep
from iron_host.runtime import runtime


@attrs.frozen
class Cost:
    """What one call of a step has to do at least. `resident`: the part of `nbytes` that is weights and caches."""

    nbytes: int
    resident: int
    operations: int


class HostProfile:
    """The `RunProfile` of the host: see `iron_core.backends.run_profile`.

    weights_read: bytes a second at which a loop without arithmetic reads their weights where they lie: less than memory's
    limit where they are on small pages, as mapped files are. None until the runs are over, and where there are none.
    """

    note = ""

    def __init__(self, executables: Mapping[str, Any], limits: Limits) -> None:
        self.executables = dict(executables)
        self.limits = limits
        self.recording = Recording()
        self.weights_read: float | None = None

    def phases(self) -> list[Phase]:
        """One for every executable that ran, in the order given."""
        found = [(name, self.recording.of(e)) for name, e in self.executables.items()]
        return [phase(name, passes) for name, passes in found if passes]

    def step_times(self) -> Iterator[tuple[PlanStep, float]]:
        """Every step that ran, and its seconds, a pass on average."""
        for executable in self.executables.values():
            passes = self.recording.of(executable)
            seconds: dict[int, float] = {}
            plans: dict[int, PlanStep] = {id(step.plan): step.plan for step in executable.image.steps}
            for one in passes:
                for index, begin, end, _ in one.steps.tolist():
                    plan = id(executable.image.steps[int(index)].plan)
                    seconds[plan] = seconds.get(plan, 0.0) + end - begin
            yield from ((plans[plan], total / len(passes)) for plan, total in seconds.items())

    def write_trace(self, path: str | Path) -> None:
        """Every pass, step and thread's share as JSON that Perfetto and chrome://tracing open."""
        names = {e: name for name, e in self.executables.items()}
        trace.write(path, [(names[p.executable], p) for p in self.recording.passes])

    def as_dict(self) -> dict[str, Any]:
        """Limits and phases as plain data."""
        return {"limits": attrs.asdict(self.limits), "weights_read": self.weights_read, "phases": [attrs.asdict(p) for p in self.phases()]}


@contextlib.contextmanager
def profiled(executables: Mapping[str, Any]) -> Iterator[HostProfile]:
    """Measure the machine, then record what these executables run inside the block."""
    threads = max((e.runtime.threads for e in executables.values()), default=1)
    found = HostProfile(executables, measure(threads))
    with record(list(executables.values())) as recording:
        yield found
    found.recording = recording
    memories = {id(e.memory): e.memory for e in executables.values()}
    weights = [raw for memory in memories.values() for raw in memory.weights()]
    if weights:
        found.weights_read = read_rate(runtime(threads), weights)


def cost(step: PlanStep, values: Mapping[str, int]) -> Cost:
    """What a step has to do in a call with these numbers."""
    shapes = {name: bounded_shape(ref.shape, ref.bounds, values) for name, ref in step.operands.items()}
    sizes = {name: ref.format.nbytes(shapes[name]) for name, ref in step.operands.items()}
    known = _lowering(step)
    moved = known.moved(step.op, sizes)
    resident = sum(size for name, size in sizes.items() if step.operands[name].space == "resident")
    return Cost(moved, min(resident, moved), known.operations(step.op, shapes))


def _lowering(step: PlanStep) -> HostLowering:
    one = taken("host", step.op, "host")
    return one.lowering if one is not None and isinstance(one.lowering, HostLowering) else HostLowering()


def run_cost(run: RunStep, values: Mapping[str, int]) -> Cost:
    """What a step of the run has to do, with those that are folded into it: what they hand on, none writes or reads."""
    found, before = cost(run.plan, values), run.plan
    for step in run.behind:
        handed = before.operands[written(before)]
        more = cost(step, values)
        inside = 2 * handed.format.nbytes(bounded_shape(handed.shape, handed.bounds, values))
        found = Cost(max(found.nbytes + more.nbytes - inside, 0), found.resident + more.resident, found.operations + more.operations)
        before = step
    return found


def phase(name: str, passes: list[Pass]) -> Phase:
    """One executable's passes added up."""
    image: Any = passes[0].executable.image
    n = len(passes)
    plans: list[PlanStep] = [step.plan for step in image.steps]
    kinds = {id(plan): kind(type(plan.op).__name__, plan.operands) for plan in plans}
    fixed = {id(s.plan): run_cost(s, {}) for s in image.steps if not any(r.bounds for p in s.plans for r in p.operands.values())}
    rows: dict[str, np.ndarray] = {}  # steps, seconds, busy, bytes, operations
    parts: dict[str, np.ndarray] = {}  # the same by category
    kernels: dict[str, float] = {}
    integer = {kinds[id(p)]: _lowering(p).integers(p.op) for p in plans}
    resident = 0.0
    for one in passes:
        before = None
        for index, begin, end, busy in one.steps.tolist():
            step = image.steps[int(index)]
            sums = (rows.setdefault(kinds[id(step.plan)], np.zeros(5)), parts.setdefault(step.plan.category or UNNAMED, np.zeros(5)))
            for row in sums:
                row[1:3] += end - begin, busy
            kernel = step.unit.template if step.unit is not None else "numpy reference"
            kernels[kernel] = kernels.get(kernel, 0.0) + end - begin
            if step.plan is not before:
                before = step.plan
                what = fixed.get(id(before)) or run_cost(step, one.values)
                for row in sums:
                    row[0] += 1
                    row[3:] += what.nbytes, what.operations
                resident += what.resident
    found = [attrs.evolve(StepTimes(label, *(row / n).tolist()), integer=integer[label]) for label, row in rows.items()]
    spans = [(p.begin, p.end) for p in passes]
    by_category = [StepTimes(label, *(row / n).tolist()) for label, row in parts.items()]
    return Phase.of(name, spans, found, resident / n, ((k, s / n) for k, s in kernels.items()), by_category)
