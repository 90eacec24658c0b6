"""`reference`: interprets a plan in numpy, each step by its operator's `reference()`. Slow, exact, runs anywhere.

It uses the plan's own arena and residents, so a plan that puts two live buffers on the same bytes, or a
binding that names the wrong number, shows here first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from iron_core.backends.memory import Memory, flat
from iron_core.backends.ports import whole
from iron_core.backends.protocol import Available, Backend, Unavailable
from iron_core.devices import DEVICES, Device
from iron_core.graph.reference import OnStep, run_step
from iron_core.graph.signature import Signature
from iron_core.graph.traced import Region, Tensor, TracedStep
from iron_core.image.plan import BufferRef, Plan, PlanStep, VersionPlan
from iron_core.lowering.answer import Yes


class ReferenceExecutable:
    """One version over a memory. `on_step`, where set, sees every step: see `iron_core.graph.reference.OnStep`."""

    def __init__(self, version: VersionPlan, memory: Memory) -> None:
        self.version = version
        self.memory = memory
        self.on_step: OnStep | None = None
        self._steps = [(_traced(step), step.operands) for step in version.steps]

    def run(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], values: Mapping[str, int]) -> None:
        """Run once; see `Executable.run`."""
        given = [flat(whole(port, data)) for port, data in zip(self.version.inputs, inputs, strict=True)]
        self.memory.traffic.inputs += sum(data.nbytes for raw, data in zip(given, inputs, strict=True) if raw.size != data.nbytes)
        made = [flat(data) for data in outputs]
        for raw in made:
            raw[:] = 0xFF  # a NaN: what a step leaves out shows
        spaces = {"input": given, "output": made, "resident": self.memory.places, "arena": self.memory.banks}

        def tensor(ref: BufferRef) -> Any:
            return ref.format.tensor(spaces[ref.space][ref.index][ref.offset : ref.offset + ref.nbytes], ref.shape)

        for step, refs in self._steps:
            run_step(step, values, {name: tensor(ref) for name, ref in refs.items()}, self.on_step)


def _traced(step: PlanStep) -> TracedStep:
    """The step as the interpreter of traced graphs takes it: every operand a buffer of its own name."""
    regions = {
        name: Region(Tensor(name, "intermediate", ref.shape, ref.format), 0, ref.shape, ref.bounds)
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

    def takes(self, dev: Device) -> bool:
        return True

    def supports(self, op: Any, dev: str) -> Yes:
        return Yes("numpy reference")

    def accepts(self, fold: Any, dev: str) -> bool:
        return True

    def compile(self, plan: Plan, signature: Signature) -> VersionPlan:
        return plan.version(signature)

    def load(self, image: VersionPlan, memory: Memory) -> ReferenceExecutable:
        return ReferenceExecutable(image, memory)
