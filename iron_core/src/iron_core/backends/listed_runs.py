"""`ListedRuns`: a run list as steps of a plan, each on buffers of its own, that a backend compiles and loads to time it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from iron_core.backends.measuring import Run, RunList, drawn
from iron_core.backends.ports import InputPort, whole
from iron_core.declare.affine import Affine, bounded_shape
from iron_core.graph.traced import Binding, PerCallValue
from iron_core.image.plan import BufferRef, PlanStep, Port, Resident, VersionPlan


class ListedRuns:
    """Packed inputs are weights, whatever else is read or written a state; `copies` of the list have buffers of their own.

    starts: by name, what states hold before a call. values: a call's. steps: a copy's behind those of the one before.
    """

    def __init__(self, runs: RunList, copies: int = 1) -> None:
        self.residents: list[Resident] = []
        self.starts: dict[str, Any] = {}
        self._members = [_expressions(run, f"r{number}") for number, run in enumerate(runs.runs)]
        self.values = {
            each.value: run.members[member] for run, held in zip(runs.runs, self._members, strict=True) for member, each in held.items()
            if each.scale == 1
        }  # fmt: skip
        inputs = [self._inputs(runs, number) for number in range(len(runs.runs))]
        self.steps = [self._step(run, i, copy, inputs[i]) for copy in range(copies) for i, run in enumerate(runs.runs)]

    def version(self) -> VersionPlan:
        """Of no tensors."""
        return VersionPlan((), tuple(self.steps), (), (), tuple(PerCallValue(name, "scratchpad", "int32") for name in self.values))

    def _inputs(self, runs: RunList, number: int) -> dict[str, Any]:
        """What a run reads, at its whole shapes."""
        op, found = runs.runs[number].op, {}
        for name, tensor in drawn(runs, number).items():
            bounds = self._bounds(op, number, name)
            port = Port(f"{runs.name}: {name}", op.shape(name), op.format(name), bounds)
            data = whole(port, InputPort(port).take(tensor, self.values), fill=0)
            found[name] = port.format.tensor(data.reshape(-1).view(np.uint8), port.shape)
        return found

    def _bounds(self, op: Any, number: int, operand: str) -> tuple[tuple[int, Affine], ...]:
        limits = op.limits(self._members[number])
        return tuple((axis, limits[f]) for axis, f in enumerate(op.operands[operand].axes(op)) if f in limits)

    def _step(self, run: Run, number: int, copy: int, inputs: Mapping[str, Any]) -> PlanStep:
        """A run as a step, whose operands become residents."""
        op, name, operands = run.op, f"c{copy}_r{number}", {}
        for operand in op.present:
            shape, format, start = op.shape(operand), op.format(operand), inputs.get(operand)
            weight = format.packed and not op.operands[operand].written
            operands[operand] = BufferRef("resident", len(self.residents), 0, shape, format, self._bounds(op, number, operand))
            held = f"{name}.{operand}"
            self.residents.append(Resident(held, "weight" if weight else "state", shape, format, start if weight else None))
            if not weight and start is not None:
                self.starts[held] = start
        return PlanStep(name, op, operands, tuple(Binding(*one) for one in self._members[number].items()))


def written(steps: Sequence[PlanStep], values: Mapping[str, int], read: Callable[[str], Any]) -> dict[tuple[int, str], np.ndarray]:
    """What steps of a list have written, by (run, operand), as far as bounds go. read: gives a resident by its name."""
    found = {}
    for number, step in enumerate(steps):
        for operand, ref in step.operands.items():
            if step.op.operands[operand].written:
                held = read(f"{step.name}.{operand}")
                cut = tuple(map(slice, bounded_shape(ref.shape, ref.bounds, values)))
                found[number, operand] = held.data if ref.format.packed else held[cut]
    return found


def _expressions(run: Run, name: str) -> dict[str, Affine]:
    """What gives a run's numbers. One that is so many times the least follows that, as in a graph, where one value gives a call's rows
    and all that is counted in them."""
    least = min((member for member, n in run.members.items() if n > 0), key=lambda member: run.members[member], default=None)
    found = {member: Affine(f"{name}_{member}") for member in run.members}
    for member, n in run.members.items():
        if least is not None and n > 0 and n % run.members[least] == 0:
            found[member] = Affine(f"{name}_{least}", scale=n // run.members[least])
    return found
