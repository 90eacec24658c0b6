"""Fixtures of the host tests: one operator as a plan of its own, and graphs judged step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from iron_core.declare.formats import PackedArray
from iron_core.graph.reference import run_step
from iron_core.image.plan import BufferRef, Packaging, PerCallValue, Plan, PlanStep, Port, Resident, VersionPlan
from iron_host.backend import HostBackend


class OneStep:
    """An operator on the host alone: inputs and outputs are ports, what it writes in place a state."""

    def __init__(self, op: Any, bindings: tuple = (), bounds: dict | None = None, **options: Any) -> None:
        self.op = op
        inputs, outputs, states, operands = [], [], [], {}
        for name in op.present:
            operand, shape, format = op.operands[name], op.shape(name), op.format(name)
            limited = tuple((axis, e) for axis, e in (bounds or {}).get(name, {}).items())
            if operand.role == "inout":
                operands[name] = BufferRef("resident", len(states), 0, shape, format, limited)
                states.append(Resident(name, "state", shape, format))
            elif operand.role == "in":
                operands[name] = BufferRef("input", len(inputs), 0, shape, format, limited)
                inputs.append(Port(name, shape, format, limited))
            else:
                operands[name] = BufferRef("output", len(outputs), 0, shape, format, limited)
                outputs.append(Port(name, shape, format, limited))
        names = sorted({b.expression.value for b in bindings})
        values = tuple(PerCallValue(name, "scratchpad", "int32") for name in names)
        step = PlanStep("step", op, operands, tuple(bindings))
        version = VersionPlan((), (step,), tuple(inputs), tuple(outputs), values)
        plan = Plan(type(op).__name__, "host", "host", Packaging("host", "run list", ()), (version,), tuple(states), ())
        backend = HostBackend()
        self.image = backend.compile(plan, (), **options)
        self.memory = backend.memory(plan)
        self.executable = backend.load(self.image, self.memory)
        self.inputs = [port.name for port in inputs]
        self.states = [state.name for state in states]

    def __call__(self, drawn: dict[str, Any], **values: int) -> tuple[Any, ...]:
        """The outputs (states written in place among them), in the operator's order."""
        for name in self.states:
            self.memory.write(name, drawn[name])
        made, _ = self.executable.call([drawn[name] for name in self.inputs], values)
        made = iter(made)
        written = [o for o in self.op.outputs if o.present(self.op)]
        return tuple(self.memory.read(o.name) if o.role == "inout" else next(made) for o in written)


@pytest.fixture
def one_step():
    """`OneStep`, the operator under test as a host executable."""
    return OneStep


def judge(traced: Any, inputs: dict[str, Any], values: dict[str, int], outputs: list[Any], states: dict[str, Any]) -> int:
    """Judge every step of a run against the exact result of what that step read; returns the elements compared.

    outputs: what the host gave for `traced.outputs`, which must be every intermediate. states: their content
    before the run; after it, what the reference leaves there given the host's intermediates.
    """
    storage: dict[str, Any] = dict(states)
    for buffer in traced.weights:
        storage[buffer.name] = buffer.data
    for buffer in traced.inputs:
        storage[buffer.name] = inputs[buffer.name]
    given = {}
    for region, output in zip(traced.outputs, outputs, strict=True):
        given[region.buffer.name] = _whole(region, output)
        storage[region.buffer.name] = _whole(region, output)
    assert set(given) == {b.name for b in traced.intermediates}, "a step's result that is not returned is not judged"
    compared = 0

    def on_step(step: Any, op: Any, read: tuple[Any, ...], results: tuple[Any, ...]) -> None:
        nonlocal compared
        written = [o for o in op.outputs if o.present(op)]
        for operand in written:
            region = step.operands[operand.name]
            if region.buffer.name not in given:
                return  # a state: compared once the run is over
        got = tuple(_cut(op, given[step.operands[o.name].buffer.name], o, step) for o in written)
        if step.op.partial:
            results = tuple(np.where(_written(step, r, values), r, g) for r, g in zip(results, got, strict=True))
        compared += op.check(got, results, *read).compared

    for step in traced.steps:
        run_step(step, values, storage, on_step)
        for name, array in given.items():  # what follows reads what the host made
            storage[name] = array.copy()
    return compared


def _whole(region: Any, output: Any) -> np.ndarray:
    array = np.zeros(region.shape, output.dtype)
    array[tuple(slice(n) for n in output.shape)] = output
    return array


def _cut(op: Any, array: Any, operand: Any, step: Any) -> Any:
    shape = op.shape(operand.name)
    full = array.reshape(step.op.shape(operand.name))
    return full[tuple(slice(n) for n in shape)]


def _written(step: Any, result: Any, values: dict[str, int]) -> np.ndarray:
    """Which elements of a partial output this step writes: those that differ between two backgrounds."""
    return np.ones(np.shape(result), bool)


@pytest.fixture
def judge_steps():
    """`judge`, the step by step comparison."""
    return judge


__all__ = ["OneStep", "PackedArray", "judge"]
