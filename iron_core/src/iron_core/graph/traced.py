"""What a body becomes when it is traced: steps over buffers. Data only; `spec` of everything downstream."""

from __future__ import annotations

import math
from typing import Any

import attrs

from iron_core.declare.formats import Format
from iron_core.graph.affine import Affine

#: A version's key: (input name, shape, format name) for each input it takes.
Signature = tuple[tuple[str, tuple[int, ...], str], ...]


@attrs.define(eq=False, slots=True)
class Buffer:
    """A whole tensor. `role`: "input", "weight", "state" or "intermediate".

    `key` is the identity of the storage a weight or state keeps, the same in every trace; `data` a weight's
    array. `name` is unique in the graph.
    """

    name: str
    role: str
    shape: tuple[int, ...]
    format: Format
    key: int | None = None
    data: Any = None

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.format.nbytes(self.shape)

    def __repr__(self) -> str:
        return f"{self.role} {self.name}{list(self.shape)}"


@attrs.frozen(eq=False)
class Region:
    """A contiguous run of a buffer, as one operand: `start` in elements, its own shape and bounds."""

    buffer: Buffer
    start: int
    shape: tuple[int, ...]
    bounds: tuple[tuple[int, Affine], ...] = ()

    @property
    def format(self) -> Format:
        return self.buffer.format

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@attrs.frozen
class Binding:
    """A per-call number of one step: an extent's bound or a `Scratchpad` member such as an offset."""

    member: str
    expression: Affine


@attrs.frozen
class PerCallValue:
    """A keyword-only parameter of the graph's body. `kind`: "scratchpad", "carried" or "dispatch"."""

    name: str
    kind: str
    dtype: str


@attrs.frozen
class IndexCheck:
    """A per-call index that must satisfy `0 <= expression` and `expression + extent <= limit` before a call runs."""

    what: str
    expression: Affine
    extent: int
    limit: int


@attrs.frozen
class IdCheck:
    """Ids of a gather that the caller passes: each of input `name` lies in `[-limit, limit)`, up to the bound."""

    name: str
    limit: int
    bound: Affine | None = None


@attrs.frozen(eq=False)
class CarryOut:
    """A carried value's next number: an Affine of this call's values, an int, or element 0 of a region."""

    name: str
    source: Affine | int | Region


@attrs.frozen(eq=False)
class TracedStep:
    """One operator at one place: `operands` maps each present operand's name to its region."""

    name: str
    op: Any
    operands: dict[str, Region]
    bindings: tuple[Binding, ...] = ()


@attrs.frozen(eq=False)
class TracedGraph:
    """One version of a graph.

    `outputs` are regions that cover whole intermediates, in the order returned. `scalars` tells whether the body
    returned one handle rather than a tuple. `checks` and `id_checks` hold before every call.
    """

    name: str
    signature: Signature
    steps: tuple[TracedStep, ...]
    inputs: tuple[Buffer, ...]
    outputs: tuple[Region, ...]
    values: tuple[PerCallValue, ...]
    carry: tuple[CarryOut, ...] = ()
    checks: tuple[IndexCheck, ...] = ()
    id_checks: tuple[IdCheck, ...] = ()
    weights: tuple[Buffer, ...] = ()
    states: tuple[Buffer, ...] = ()
    intermediates: tuple[Buffer, ...] = ()
    single: bool = True

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """Every buffer any step touches."""
        return (*self.inputs, *self.weights, *self.states, *self.intermediates)

    def __str__(self) -> str:
        lines = [f"{self.name}: {len(self.steps)} steps"]
        for step in self.steps:
            operands = ", ".join(f"{k}={r.buffer.name}{list(r.shape)}" for k, r in step.operands.items())
            bound = "".join(f" {b.member}={b.expression!r}" for b in step.bindings)
            lines.append(f"  {step.name}: {type(step.op).__name__}({operands}){bound}")
        return "\n".join(lines)

    def html(self, path: Any = None) -> str:
        """A page that shows the steps and buffers; written to `path` if given."""
        from iron_core.visualize import html

        return html(self, path)

    def dot(self) -> str:
        """Graphviz text."""
        from iron_core.visualize import dot

        return dot(self)
