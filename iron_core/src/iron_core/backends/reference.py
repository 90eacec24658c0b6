"""`reference`: interprets a plan in numpy, each step by its operator's `reference()`. Slow, exact, runs anywhere.

It uses the plan's own arena and residents, so a plan that puts two live buffers on the same bytes, or a
binding that names the wrong number, shows here first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from iron_core.backends.loop import loop_by_calls
from iron_core.backends.protocol import Available, Backend, Unavailable
from iron_core.declare.affine import Affine, evaluate
from iron_core.declare.formats import Format, PackedArray, format_of
from iron_core.declare.tensor import plain
from iron_core.devices import DEVICES
from iron_core.errors import FormatError, ShapeError
from iron_core.graph.reference import OnStep, run_step
from iron_core.graph.traced import Buffer, Region, TracedStep
from iron_core.image.plan import BufferRef, Plan, PlanStep, Port, Signature, VersionPlan
from iron_core.lowering.answer import Yes


def as_bytes(tensor: Any) -> np.ndarray:
    """The bytes of an array or PackedArray, without a copy where it is contiguous."""
    data = tensor.data if isinstance(tensor, PackedArray) else np.asarray(tensor)
    return np.ascontiguousarray(data).reshape(-1).view(np.uint8)


def cut(tensor: Any, bounds: Sequence[tuple[int, Affine]], values: Mapping[str, int]) -> Any:
    """The part of a tensor that this call's bounds leave."""
    if not bounds:
        return tensor
    index = [slice(None)] * len(tensor.shape)
    for axis, expression in bounds:
        index[axis] = slice(evaluate(expression, values))
    return tensor[tuple(index)]


def taken(port: Port, given: Any) -> Any:
    """What a caller gave for an input: an array or PackedArray of the port's format, converted once. CallError, ShapeError."""
    given = plain(given, f"input `{port.name}`")
    try:
        got = format_of(given)
    except FormatError as error:
        raise ShapeError(f"input `{port.name}` is {port.format}; {error}") from None
    if got != port.format:
        raise ShapeError(f"input `{port.name}` is {port.format}; got {got}.")
    return given


def _unwritten(nbytes: int) -> np.ndarray:
    """Fresh bytes. All ones are a NaN in every float dtype, so a read of what nobody wrote shows."""
    return np.full(nbytes, 0xFF, np.uint8)


class ReferenceMemory:
    """Residents and arena as numpy bytes. A weight is the array the graph holds, until it is written."""

    def __init__(self, plan: Plan) -> None:
        self.residents: dict[str, np.ndarray] = {}
        self.kinds: dict[str, tuple[tuple[int, ...], Format]] = {}
        self.order: list[str] = []
        self.banks: list[np.ndarray] = []
        self.grow(plan)

    def grow(self, plan: Plan) -> None:
        """Add what the plan has and this has not; what is there keeps its content."""
        for resident in plan.residents:
            if resident.name not in self.residents:
                zeros = resident.data is None
                raw = np.zeros(resident.nbytes, np.uint8) if zeros else as_bytes(resident.data)
                self.residents[resident.name] = raw
                self.kinds[resident.name] = (resident.shape, resident.format)
                self.order.append(resident.name)
        for number, nbytes in enumerate(plan.banks):
            if number == len(self.banks):
                self.banks.append(_unwritten(nbytes))
            elif self.banks[number].size < nbytes:
                grown = _unwritten(nbytes)
                grown[: self.banks[number].size] = self.banks[number]
                self.banks[number] = grown

    def read(self, name: str) -> Any:
        """A copy of a resident."""
        shape, format = self.kinds[name]
        return format.tensor(self.residents[name].copy(), shape)

    def write(self, name: str, array: Any) -> None:
        """Replace a resident's content; the array that a weight came from stays as it is."""
        shape, format = self.kinds[name]
        array = plain(array, name)
        if tuple(array.shape) != shape or format_of(array) != format:
            raise ShapeError(f"{name} is {shape} {format.name}; got {tuple(array.shape)} {format_of(array).name}.")
        self.residents[name] = as_bytes(array).copy()


class ReferenceExecutable:
    """One version over a memory. `on_step`, where set, sees every step: see `iron_core.graph.reference.OnStep`."""

    def __init__(self, version: VersionPlan, memory: ReferenceMemory) -> None:
        self.version = version
        self.memory = memory
        self.on_step: OnStep | None = None
        self._steps = [(_traced(step), step.operands) for step in version.steps]

    def call(self, inputs: Sequence[Any], values: Mapping[str, int]) -> tuple[list[Any], dict[str, int]]:
        """Run once; see `Executable.call`."""
        version = self.version
        taken = [
            _place(port, tensor, values) for port, tensor in zip(version.inputs, inputs, strict=True)
        ]
        made = [_unwritten(port.format.nbytes(port.shape)) for port in version.outputs]
        residents = [self.memory.residents[name] for name in self.memory.order]
        spaces = {"input": taken, "output": made, "resident": residents, "arena": self.memory.banks}

        def tensor(ref: BufferRef) -> Any:
            return ref.format.tensor(spaces[ref.space][ref.index][ref.offset : ref.offset + ref.nbytes], ref.shape)

        for step, refs in self._steps:
            run_step(step, values, {name: tensor(ref) for name, ref in refs.items()}, self.on_step)
        carried = {}
        for term in version.carry:
            source = term.source
            carried[term.name] = (
                int(tensor(source).reshape(-1)[0]) if isinstance(source, BufferRef) else evaluate(source, values)
            )
        outputs = [
            cut(port.format.tensor(raw, port.shape), port.bounds, values)
            for raw, port in zip(made, version.outputs, strict=True)
        ]
        return outputs, carried

    def loop(
        self, steps: int, values: Mapping[str, int], on_step: Callable[[int, dict[str, int]], bool] | None = None
    ) -> dict[str, int]:
        """Run a version without tensors again and again; see `Executable.loop`."""
        return loop_by_calls(self, self.version, steps, values, on_step)


def _place(port: Port, given: Any, values: Mapping[str, int]) -> np.ndarray:
    """The bytes of an input at its compiled shape; rows past a bound that were not given count as unwritten."""
    given = taken(port, given)
    if tuple(given.shape) == port.shape:
        return as_bytes(given)
    whole = port.format.tensor(_unwritten(port.format.nbytes(port.shape)), port.shape)
    part = cut(whole, port.bounds, values)
    if tuple(part.shape) != tuple(given.shape):
        raise ShapeError(
            f"input `{port.name}` has shape {tuple(given.shape)}; it takes {port.shape} or, cut to this call's bound, "
            f"{tuple(part.shape)}."
        )
    if isinstance(part, PackedArray):
        part.data[...] = given.data
        return as_bytes(whole)
    part[...] = given
    return as_bytes(whole)


def _traced(step: PlanStep) -> TracedStep:
    """The step as the interpreter of traced graphs takes it: every operand a buffer of its own name."""
    regions = {
        name: Region(Buffer(name, "intermediate", ref.shape, ref.format), 0, ref.shape, ref.bounds)
        for name, ref in step.operands.items()
    }
    return TracedStep(step.name, step.op, regions, step.bindings)


class ReferenceBackend(Backend):
    """Takes every operator on every device; nothing is built."""

    name = "reference"

    def probe(self) -> Available | Unavailable:
        return Available(f"numpy {np.__version__}, every operator by its reference")

    def devices(self) -> tuple[str, ...]:
        return tuple(DEVICES)

    def supports(self, op: Any, dev: str) -> Yes:
        return Yes("numpy reference")

    def accepts(self, fold: Any, dev: str) -> bool:
        return True

    def compile(self, plan: Plan, signature: Signature) -> VersionPlan:
        return plan.version(signature)

    def memory(self, plan: Plan) -> ReferenceMemory:
        return ReferenceMemory(plan)

    def load(self, image: VersionPlan, memory: ReferenceMemory) -> ReferenceExecutable:
        return ReferenceExecutable(image, memory)
