"""What a graph becomes before a backend sees it: versions of steps over placed buffers.

A `Plan` covers every version of a graph compiled so far. Versions share residents (weights and
states) and the arena; each has its own steps, ports and per-call values. Everything here is data.
"""

from __future__ import annotations

from typing import Any

import attrs

from iron_core.declare.affine import Affine, by_key
from iron_core.declare.formats import Format
from iron_core.graph.fold import Fold
from iron_core.graph.signature import Signature
from iron_core.graph.traced import Binding, IdCheck, IndexCheck, PerCallValue
from iron_core.image.arena import Spot


@attrs.frozen
class BufferRef:
    """Where an operand's bytes are. `space` is "resident", "arena", "input" or "output".

    `index` is the resident's, bank's or port's number; `offset` counts bytes into it. They store a
    tensor of this shape and format, row-major. `bounds` gives, per axis a call limits, the rows there are.
    """

    space: str
    index: int
    offset: int
    shape: tuple[int, ...]
    format: Format
    bounds: tuple[tuple[int, Affine], ...] = attrs.field(default=(), eq=by_key)

    @property
    def nbytes(self) -> int:
        return self.format.nbytes(self.shape)

    def overlaps(self, other: BufferRef) -> bool:
        """Do the two share a byte? A backend that moves or merges steps asks this of the arena's references."""
        if (self.space, self.index) != (other.space, other.index):
            return False
        return self.offset < other.offset + other.nbytes and other.offset < self.offset + self.nbytes


@attrs.frozen(eq=False)
class PlanStep:
    """One operator at one place of the run.

    `operands` maps each present operand's name to where it is, in declaration order. category: what a profile counts it under.
    """

    name: str
    op: Any
    operands: dict[str, BufferRef]
    bindings: tuple[Binding, ...] = ()
    category: str = ""


@attrs.frozen
class Port:
    """A tensor the caller passes in or gets back. `bounds` as in `BufferRef`."""

    name: str
    shape: tuple[int, ...]
    format: Format
    bounds: tuple[tuple[int, Affine], ...] = attrs.field(default=(), eq=by_key)


@attrs.frozen
class CarryTerm:
    """How a carried value's next number is made: an Affine of this call's values, or element 0 of a buffer."""

    name: str
    source: Affine | int | BufferRef = attrs.field(eq=by_key)


@attrs.frozen(eq=False)
class VersionPlan:
    """One input signature's run.

    `checks` and `id_checks` hold before every call. `single`: the body returned one tensor, not a tuple of one. `spots`:
    bank, offset and bytes of every buffer it has in the arena. planes: (2, carried) int32 in the arena, of a version that may compute
    a next call: plane 0 for the values a call starts from, in the order of `carry`; elements that are carried lie in plane 1. They are
    at the same bytes in every version that carries the same.
    `refused`: folds of steps that run by themselves, each with the backend's reason. `unfolded`: where folds were asked for and none was
    taken, why.
    """

    signature: Signature
    steps: tuple[PlanStep, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    values: tuple[PerCallValue, ...]
    carry: tuple[CarryTerm, ...] = ()
    checks: tuple[IndexCheck, ...] = ()
    id_checks: tuple[IdCheck, ...] = ()
    folds: tuple[Fold, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    unfolded: str = ""
    single: bool = True
    spots: tuple[tuple[int, int, int], ...] = ()
    planes: BufferRef | None = None


@attrs.frozen(eq=False)
class Resident:
    """A weight or a state, stored once for all versions. `kind`: "weight" or "state".

    `data` is the weight's array (or PackedArray); None for a state, which starts as zeros. `key` is the identity
    of the storage in this process: equal keys are one resident, whatever trace they come from. `spot` is its place
    in the plan's resident banks, the same for as long as there is the plan; None on the host, which points at the data.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    format: Format
    data: Any = None
    key: int | None = None
    spot: Spot | None = None

    @property
    def nbytes(self) -> int:
        return self.format.nbytes(self.shape)


@attrs.frozen
class Packaging:
    """How steps become dispatches. `image`: "elf", "xclbin", "contexts", "host"; `reasons` are sentences, one per rule that
    decided."""

    image: str
    dispatch: str
    reasons: tuple[str, ...]
    lowered_values: tuple[tuple[str, str], ...] = ()


@attrs.frozen(eq=False)
class Plan:
    """A graph on one (backend, device, boundaries, image): all its versions together.

    `banks` are the sizes in bytes of the arena's banks, `resident_banks` of those that weights and states lie in, each at most
    3.5 GiB. A version added later may make banks larger and add some; no resident ever moves.
    """

    name: str
    backend: str
    dev: str
    packaging: Packaging
    versions: tuple[VersionPlan, ...]
    residents: tuple[Resident, ...]
    banks: tuple[int, ...]
    resident_banks: tuple[int, ...] = ()

    def version(self, signature: Signature) -> VersionPlan:
        """The version of this signature; KeyError if it is not planned."""
        for version in self.versions:
            if version.signature == signature:
                return version
        raise KeyError(signature)
