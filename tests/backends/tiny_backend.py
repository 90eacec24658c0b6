"""`tiny`: a whole backend in a page. It compiles a plan to a list of numpy calls and runs them, elementwise steps alone.

What every backend has to say is here: what it takes, what a version becomes (an image, which is data), and how that runs.
Checking what a call is given, outputs, carried values, loops, weights, states and the arena are core's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from iron_core import Available, Backend, No, Yes
from iron_core.backends.memory import Memory, flat
from iron_core.backends.ports import whole
from iron_core.errors import CallError
from iron_core.graph.signature import Signature
from iron_core.image.plan import BufferRef, Plan, Port

#: What it has: an operator's name, and how it is computed on arrays of numbers.
CALLS = {
    "ElementwiseAdd": lambda a, b: a + b,
    "ElementwiseMul": lambda a, b: a * b,
    "ReLU": lambda x: np.maximum(x, 0),
}


@attrs.frozen
class TinyImage:
    """One version: its inputs, and per step the call's name, where it reads and where it writes."""

    inputs: tuple[Port, ...]
    calls: tuple[tuple[str, tuple[BufferRef, ...], BufferRef], ...]


class TinyExecutable:
    """A version over its memory."""

    def __init__(self, image: TinyImage, memory: Memory, most: int) -> None:
        self.image, self.memory, self.most = image, memory, most

    def run(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], values: Mapping[str, int]) -> None:
        """Every call in order. `values` are of no use here: no operator it takes follows one."""
        spaces = {
            "input": [flat(whole(port, data)) for port, data in zip(self.image.inputs, inputs, strict=True)],
            "output": [flat(data) for data in outputs],
            "resident": self.memory.places,
            "arena": self.memory.banks,
        }

        def tensor(ref: BufferRef) -> Any:
            return ref.format.tensor(spaces[ref.space][ref.index][ref.offset : ref.offset + ref.nbytes], ref.shape).reshape(-1)

        for name, reads, writes in self.image.calls:
            into = tensor(writes)
            for start in range(0, into.size, self.most):
                part = slice(start, start + self.most)
                into[part] = CALLS[name](*(tensor(ref)[part].astype(np.float32) for ref in reads))


def _most(given: int) -> int:
    if not isinstance(given, int) or given < 1:
        raise CallError(f"most={given!r}; legal: 1 or more numbers.")
    return given


@attrs.frozen
class TinyBackend(Backend):
    """most: the numbers it computes at a time."""

    most: int = attrs.field(default=4096, converter=_most, kw_only=True)
    name = "tiny"

    def probe(self) -> Available:
        return Available(f"numpy {np.__version__}, {len(CALLS)} elementwise operators")

    def devices(self) -> tuple[str, ...]:
        return ("host",)

    def supports(self, op: Any, dev: str) -> Yes | No:
        """By name: an operator of another pack is no import of this one."""
        if type(op).__name__ not in CALLS:
            return No(f"it computes {', '.join(CALLS)}.")
        return Yes(f"numpy, {self.most} numbers at a time")

    def compile(self, plan: Plan, signature: Signature) -> TinyImage:
        version = plan.version(signature)
        calls = []
        for step in version.steps:
            *reads, writes = step.operands.values()
            calls.append((type(step.op).__name__, tuple(reads), writes))
        return TinyImage(version.inputs, tuple(calls))

    def load(self, image: TinyImage, memory: Memory) -> TinyExecutable:
        return TinyExecutable(image, memory, self.most)
