"""What a body becomes when it is traced: steps over tensors. Data only."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np

from iron_core.declare.affine import Affine, by_key
from iron_core.declare.formats import Format
from iron_core.errors import BoundsError, CallError
from iron_core.graph.pictured import Pictured
from iron_core.graph.signature import Signature


def rebound(
    shape: tuple[int, ...], bounds: Mapping[int, Affine], dims: tuple[int, ...]
) -> dict[int, Affine] | None:
    """The bounds of a contiguous tensor of `shape` under another shape `dims`; None where they are not whole rows of it."""
    if not bounds:
        return {}
    (axis, expression), *more = bounds.items()
    if more or math.prod(shape[:axis]) != 1:
        return None
    inner = math.prod(shape[axis + 1 :])
    leading = [at for at in range(len(dims)) if math.prod(dims[:at]) == 1]
    for at in leading:  # the coarsest rows that still are whole
        count = expression.times(inner).exactly(math.prod(dims[at + 1 :]))
        if count is not None:
            return {at: count}
    return None


_RANGES = {name: (int(np.iinfo(name).min), int(np.iinfo(name).max)) for name in ("int32", "uint32")}


@attrs.define(eq=False, slots=True)
class Tensor:
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
    def a_role(self) -> str:
        """The role with its article, for messages."""
        return f"{'an' if self.role.startswith('i') else 'a'} {self.role}"

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
    """A contiguous run of a tensor, as one operand: `start` in elements, its own shape and bounds."""

    tensor: Tensor
    start: int
    shape: tuple[int, ...]
    bounds: tuple[tuple[int, Affine], ...] = ()

    @property
    def format(self) -> Format:
        return self.tensor.format

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def whole(self) -> bool:
        """Is it all of its tensor?"""
        return self.start == 0 and self.size == self.tensor.size

    def overlaps(self, other: Region) -> bool:
        """Do the two share an element?"""
        return (
            self.tensor is other.tensor and self.start < other.start + other.size and other.start < self.start + self.size
        )


@attrs.frozen
class Binding:
    """A per-call number of one step: an extent's bound or a `Scratchpad` member such as an offset."""

    member: str
    expression: Affine = attrs.field(eq=by_key)


@attrs.frozen
class PerCallValue:
    """A keyword-only parameter of the graph's body. `kind`: "scratchpad", "carried" or "dispatch"."""

    name: str
    kind: str
    dtype: str

    @property
    def range(self) -> tuple[int, int]:
        """The least and the largest number it holds."""
        return _RANGES[self.dtype]

    def number(self, given: Any) -> int:
        """What a call gave for it, as an int; CallError for no whole number, or one its dtype cannot hold."""
        try:
            n = operator.index(given)
        except TypeError:
            raise CallError(f"{self.name}={given!r}: a per-call value is a whole number, an int or numpy integer.") from None
        low, high = self.range
        if not low <= n <= high:
            raise CallError(f"{self.name}={n} does not fit {self.dtype}; legal: {low} to {high}.")
        return n


def numbers(graph: str, known: Mapping[str, PerCallValue], given: Mapping[str, Any]) -> dict[str, int]:
    """The per-call values of a call as ints; CallError for names missing or unknown, and for what is no number of theirs."""
    if given.keys() != known.keys():
        missing, unknown = [n for n in known if n not in given], [n for n in given if n not in known]
        parts = [f"needs {', '.join(f'{name}=' for name in missing)}"] if missing else []
        parts += [f"takes no {', '.join(f'{name}=' for name in unknown)}"] if unknown else []
        raise CallError(f"{graph}: the call {' and '.join(parts)}. Its per-call values: {', '.join(known) or 'none'}.")
    return {name: known[name].number(n) for name, n in given.items()}


@attrs.frozen
class IndexCheck:
    """A per-call index that must satisfy `0 <= expression` and `expression + extent <= limit` before a call runs."""

    what: str
    expression: Affine = attrs.field(eq=by_key)
    extent: int
    limit: int

    def verify(self, values: Mapping[str, int]) -> None:
        """BoundsError unless it holds under these per-call values."""
        at = self.expression.at(values)
        if at < 0 or at + self.extent > self.limit:
            name = self.expression.value
            raise BoundsError(f"{self.what} is {at} ({name}={values[name]}); legal: 0 to {self.limit - self.extent}.")


@attrs.frozen
class IdCheck:
    """Ids of a gather that the caller passes: elements `start` to `start + count` of input `name`, up to the bound, each
    lie in `[-limit, limit)`. `count` None: to the end."""

    name: str
    limit: int
    bound: Affine | None = attrs.field(default=None, eq=by_key)
    start: int = 0
    count: int | None = None

    def verify(self, ids: Any, values: Mapping[str, int]) -> None:
        """BoundsError unless every id a call reads is a row of its table. ids: the whole input, or cut to its bound."""
        count = self.count if self.bound is None else self.bound.at(values)
        rows = np.asarray(ids).reshape(-1)[self.start : None if count is None else self.start + count]
        if rows.size and (rows.max() >= self.limit or rows.min() < -self.limit):
            bad = rows[(rows < -self.limit) | (rows >= self.limit)][0]
            raise BoundsError(f"{self.name} holds id {bad}; legal: {-self.limit} to {self.limit - 1}.")


@attrs.frozen(eq=False)
class CarryOut:
    """A carried value's next number: an Affine of this call's values, an int, or element 0 of a region."""

    name: str
    source: Affine | int | Region


@attrs.frozen(eq=False)
class TracedStep:
    """One operator at one place: `operands` maps each present operand's name to its region. category: of the graph that made it."""

    name: str
    op: Any
    operands: dict[str, Region]
    bindings: tuple[Binding, ...] = ()
    category: str = ""

    def written(self) -> tuple[Region, ...]:
        """The regions it writes."""
        return tuple(region for name, region in self.operands.items() if self.op.operands[name].written)


@attrs.frozen(eq=False)
class TracedGraph(Pictured):
    """One version of a graph.

    `outputs` are regions that cover whole intermediates, in the order returned. `single`: the body returned one handle, not a
    tuple of one. `checks` and `id_checks` hold before every call.
    """

    name: str
    signature: Signature
    steps: tuple[TracedStep, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Region, ...]
    values: tuple[PerCallValue, ...]
    carry: tuple[CarryOut, ...] = ()
    checks: tuple[IndexCheck, ...] = ()
    id_checks: tuple[IdCheck, ...] = ()
    weights: tuple[Tensor, ...] = ()
    states: tuple[Tensor, ...] = ()
    intermediates: tuple[Tensor, ...] = ()
    single: bool = True

    def bounds_of(self, tensor: Tensor) -> tuple[tuple[int, Affine], ...]:
        """How far an input is read, per axis of its shape: it may be given cut to this.

        The bound all its uses share; none where one of them reads it whole or only a part known when tracing.
        """
        found: dict[Any, tuple[tuple[int, Affine], ...]] = {}
        for step in self.steps:
            for region in step.operands.values():
                if region.tensor is tensor:
                    moved = rebound(region.shape, dict(region.bounds), tensor.shape) if region.whole else None
                    bounds = region.bounds if region.shape == tensor.shape else tuple((moved or {}).items())
                    found[tuple((axis, expression.key) for axis, expression in bounds)] = bounds
        return next(iter(found.values())) if len(found) == 1 else ()

    def __str__(self) -> str:
        lines = [f"{self.name}: {len(self.steps)} steps"]
        for step in self.steps:
            operands = ", ".join(f"{k}={r.tensor.name}{list(r.shape)}" for k, r in step.operands.items())
            bound = "".join(f" {b.member}={b.expression!r}" for b in step.bindings)
            lines.append(f"  {step.name}: {type(step.op).__name__}({operands}){bound}")
        return "\n".join(lines)
