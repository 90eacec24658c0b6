"""Scalars: what cores read (`Value`), extents a call may bound (`Extent`), and the per-call kinds.

`Scratchpad`, `Carried` and `DispatchTime` are used twice: subscripted, `Scratchpad[np.int32]`, as the
annotation of a graph body's keyword; called, `row = Scratchpad(np.int32)`, as an operator's member
that a call site may bind to a per-call expression.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import attrs
import numpy as np

from iron_core.declare.field import Field
from iron_core.errors import DeclarationError

if TYPE_CHECKING:
    from iron_core.declare.affine import Affine as _InBody  # what a body's per-call value is to a type checker
else:
    _InBody = object

_T = TypeVar("_T", bound=np.integer)

#: Per-call values are 32-bit words on every device.
_WORDS = (np.dtype(np.int32), np.dtype(np.uint32))

#: Extent members read while a `Value`'s rule is probed (see `Value.follows`).
_READS: contextvars.ContextVar[set[str] | None] = contextvars.ContextVar("iron_extent_reads", default=None)


class _Member:
    name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name


class Value(_Member):
    """A scalar the cores read. `derive`, a callable of the operator, gives it; read on an instance it is that number.

    optional: some builds do not read it. address, lock: its place in an array nobody here builds.
    """

    def __init__(
        self,
        dtype: Any = np.int32,
        *,
        derive: Callable[[Any], int] | None = None,
        optional: bool = False,
        address: int | None = None,
        lock: int | None = None,
    ) -> None:
        self.dtype = np.dtype(dtype)
        if self.dtype.kind == "f":
            raise DeclarationError(f"Value({self.dtype}): cores read integer words; carry a float's bits as int32.")
        self.derive = derive
        self.optional = optional
        self.address = address
        self.lock = lock

    def __get__(self, op: Any, owner: type | None = None) -> Any:
        if op is None:
            return self
        return None if self.derive is None else int(self.derive(op))

    def follows(self, op: Any) -> frozenset[str]:
        """The `Extent` members its rule reads: where a graph bounds one of them, the value is one per call."""
        if self.derive is None:
            return frozenset()
        reads: set[str] = set()
        token = _READS.set(reads)
        try:
            self.derive(op)
        finally:
            _READS.reset(token)
        return frozenset(reads)


class Extent(_Member):
    """Says that a field's extent may be bounded per call. `Extent(M)`: the first n of M. Read, it is the field.

    multiples: fields that are a whole number of times this one, and are bounded in proportion.
    """

    def __init__(self, field: Any, *, multiples: tuple[Any, ...] = ()) -> None:
        self._field: Field = field
        self._multiples: tuple[Field, ...] = multiples

    @property
    def field(self) -> str:
        return self._field.name

    @property
    def multiples(self) -> tuple[str, ...]:
        return tuple(field.name for field in self._multiples)

    def __get__(self, op: Any, owner: type | None = None) -> Any:
        if op is None:
            return self
        reads = _READS.get()
        if reads is not None:
            reads.add(self.name)
        return getattr(op, self.field)


@attrs.frozen
class PerCall:
    """A per-call annotation: `kind` is "scratchpad", "carried" or "dispatch"."""

    kind: str
    dtype: np.dtype


class _PerCallKind(_Member, _InBody):
    kind = ""

    def __init__(self, dtype: Any) -> None:
        self.dtype = self.annotate(dtype).dtype

    @classmethod
    def annotate(cls, dtype: Any) -> PerCall:
        if dtype not in _WORDS:
            shown = getattr(dtype, "__name__", dtype)
            raise DeclarationError(f"{cls.__name__}[{shown}]: a per-call value is a 32-bit integer; legal: np.int32, np.uint32.")
        return PerCall(cls.kind, np.dtype(dtype))

    def __class_getitem__(cls, dtype: Any) -> PerCall:
        return cls.annotate(dtype)


class Scratchpad(_PerCallKind, Generic[_T]):
    """A per-call integer patched in at call time.

    As an operator's member: `within` is the operand it indexes (in elements) and `count` how many elements from there
    are used; a call whose number leaves the operand is refused before it runs.
    """

    kind = "scratchpad"

    def __init__(self, dtype: type[_T], *, within: Any = None, count: int = 1) -> None:
        super().__init__(dtype)
        self.within = within
        self.count = count


class Carried(_PerCallKind, Generic[_T]):
    """A per-call integer the graph computes for its own next call."""

    kind = "carried"


class DispatchTime(_PerCallKind, Generic[_T]):
    """A per-call integer that regenerates the instruction sequence (sizes, strides and offsets may follow it)."""

    kind = "dispatch"
