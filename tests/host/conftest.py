"""Fixtures of the host tests: one operator as a plan of its own, and graphs judged step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from iron_core.backends.ports import InputPort, OutputPort
from iron_core.declare.formats import PackedArray
from iron_core.graph.reference import run_step
from iron_core.graph.traced import PerCallValue
from iron_core.image.plan import BufferRef, Packaging, Plan, PlanStep, Port, Resident, VersionPlan
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
        backend = HostBackend(**options)
        self.image = backend.compile(plan, ())
        self.memory = backend.memory(plan)
        self.executable = backend.load(self.image, self.memory)
        self.inputs, self.outputs = [InputPort(port) for port in inputs], [OutputPort(port) for port in outputs]
        self.states = [state.name for state in states]

    def __call__(self, drawn: dict[str, Any], **values: int) -> tuple[Any, ...]:
        """The outputs (states written in place among them), in the operator's order."""
        for name in self.states:
            self.memory.write(name, drawn[name])
        made = [np.zeros(port.shape, port.dtype) for port in self.outputs]
        self.executable.run([port.take(drawn[port.port.name], values) for port in self.inputs], made, values)
        made = iter([port.finish(data, values) for port, data in zip(self.outputs, made, strict=True)])
        written = [o for o in self.op.outputs if o.present(self.op)]
        return tuple(self.memory.read(o.name) if o.role == "inout" else next(made) for o in written)


@pytest.fixture
def one_step():
    """`OneStep`, the operator under test as a host executable."""
    return OneStep


def judge(traced: Any, inputs: dict[str, Any], values: dict[str, int], outputs: Any, states: dict[str, Any]) -> int:
    """Judge every step of a run against the exact result of what that step read; returns the elements compared.

    outputs: what the host gave for `traced.outputs`, which must be every intermediate. states: their content
    before the run; after it, what the steps' references leave there given the host's intermediates.
    """
    storage: dict[str, Any] = dict(inputs)
    storage.update((buffer.name, buffer.data) for buffer in traced.weights)
    storage.update(states)
    made = {r.tensor.name: _whole(r, o) for r, o in zip(traced.outputs, outputs, strict=True)}
    assert set(made) == {b.name for b in traced.intermediates}, "a step's result that is not returned is not judged"
    compared = 0

    def on_step(step: Any, op: Any, read: tuple[Any, ...], results: tuple[Any, ...]) -> None:
        nonlocal compared
        written = [o for o in op.outputs if o.present(op)]
        if any(step.operands[o.name].tensor.name not in made for o in written):
            return  # a state, compared once the run is over
        got = tuple(_part(made[step.operands[o.name].tensor.name], step.op, op, o.name) for o in written)
        if any(isinstance(g, PackedArray) for g in got):
            for g, result in zip(got, results, strict=True):
                assert g.data.tobytes() == result.data.tobytes(), f"{step.name}: packed bytes"
                compared += g.size
            return
        if op.partial:  # what a copy leaves as it was is no result
            results = tuple(np.asarray(r).reshape(g.shape) for r, g in zip(results, got, strict=True))
        compared += op.check(got, results, *read).compared

    for step in traced.steps:
        # A copy into a new tensor is compared whole: what it does not write is the host's on both sides.
        storage.update((name, _copy(array)) for name, array in made.items())
        run_step(step, values, storage, on_step)
    return compared


def _copy(array: Any) -> Any:
    return PackedArray(array.data.copy(), array.shape, array.format) if isinstance(array, PackedArray) else array.copy()


def _whole(region: Any, output: Any) -> Any:
    """An output at its compiled shape; what its bound cuts off is zero."""
    if isinstance(output, PackedArray):
        return output
    array = np.zeros(region.shape, output.dtype)
    array[tuple(slice(n) for n in output.shape)] = output
    return array


def _part(array: Any, whole: Any, bounded: Any, name: str) -> Any:
    """What a bounded operator wrote of an output."""
    if isinstance(array, PackedArray):
        return array
    full = array.reshape(whole.shape(name))
    return full[tuple(slice(n) for n in bounded.shape(name))]


@pytest.fixture
def judge_steps():
    """`judge`, the step by step comparison."""
    return judge
