"""Scalars: what cores read (`Value`), extents a call may bound (`Extent`), and the per-call kinds.

`Scratchpad`, `Carried` and `DispatchTime` are used twice: subscripted, `Scratchpad[np.int32]`, as the
annotation of a graph body's keyword; called, `row = Scratchpad(np.int32)`, as an operator's member
that a call site may bind to a per-call expression.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import attrs
import numpy as np

from iron_core.declare.affine import Affine
from iron_core.declare.authored import authored
from iron_core.declare.callables import spelled, takes
from iron_core.declare.field import Field, ParamField
from iron_core.declare.keywords import declaration, in_class
from iron_core.errors import DeclarationError, TraceError

if TYPE_CHECKING:
    _InBody = Affine  # what a body's per-call value is to a type checker
else:
    _InBody = object

_T = TypeVar("_T", np.int32, np.uint32)

#: Per-call values are 32-bit words on every device.
_WORDS = (np.dtype(np.int32), np.dtype(np.uint32))


class Member:
    """What a class body names besides fields and operands."""

    name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name


@declaration
class Value(Member):
    """A scalar the cores read. `derive`, a callable of the operator, gives it; read on an instance it is that number.

    The rule reads an `Extent` where it follows the number that a call gives, a field where it means the whole; what follows a
    call is made of sums, products with and floor divisions by other numbers, for it is evaluated once, on an expression.

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
        if callable(dtype) and not isinstance(dtype, type):
            raise DeclarationError(f"{in_class()}Value({spelled(dtype)}): a rule by position; legal: Value(derive=lambda op: ...).")
        try:
            self.dtype = np.dtype(dtype)
        except TypeError:
            raise DeclarationError(f"{in_class()}Value({dtype!r}): no dtype; legal: np.int32, np.uint32 (its rule is derive=).") from None
        if derive is not None and (not callable(derive) or not takes(derive, 1)):
            shown = f"derive={derive!r}" if not callable(derive) else "derive=a callable of other arguments"
            raise DeclarationError(f"{in_class()}Value({shown}); legal: a callable of the operator, as lambda op: op.size // 16.")
        if self.dtype not in _WORDS:
            raise DeclarationError(
                f"{in_class()}Value({self.dtype}): cores read words of 32 bits; legal: np.int32, np.uint32 (a float's bits as int32)."
            )
        self.derive = derive
        self.optional = optional
        self.address = address
        self.lock = lock

    def __get__(self, op: Any, owner: type | None = None) -> Any:
        if op is None:
            return self
        if self.derive is None:
            return None
        with authored(op, f"{self.name}'s rule"):
            found = self.derive(op)
        if isinstance(found, Affine):
            return found
        try:
            return operator.index(found)
        except TypeError:
            raise DeclarationError(f"{type(op).__name__}.{self.name}: its rule gave {found!r}; legal: a whole number.") from None

    def form(self, op: Any, bounds: Mapping[str, Affine]) -> Affine | int:
        """What it is where calls bound these `Extent` members, each an expression: one too if its rule reads any of them.

        DeclarationError where the rule computes what no row of a table can hold (see `Affine`).
        """
        twin = op.base.evolve()
        twin.per_call = dict(bounds)
        try:
            return self.__get__(twin)
        except TraceError as error:
            raise DeclarationError(
                f"{type(twin).__name__}.{self.name} follows {', '.join(bounds)} by a rule that no table holds: {error} Legal: sums, "
                "products with and floor divisions by numbers that no call changes."
            ) from None


@declaration
class Extent(Member):
    """Says that a field's extent may be bounded per call. `Extent(M)`: the first n of M. Read, it is the field, or on a twin
    whose `per_call` has it the call's expression.

    multiples: fields that are a whole number of times this one, and are bounded in proportion.
    """

    def __init__(self, field: Any = None, *, multiples: tuple[Any, ...] = ()) -> None:
        if isinstance(multiples, Field):
            multiples = (multiples,)
        if not isinstance(multiples, (tuple, list)):
            raise DeclarationError(f"{in_class()}Extent(multiples={multiples!r}): legal: a tuple of fields of the class.")
        for given in (field, *multiples):
            if not isinstance(given, ParamField):
                raise DeclarationError(
                    f"{in_class()}Extent({given!r}): legal: a field of the class, as in Extent(M): a Param that an operand's shape has."
                )
        self._field: Field = field
        self._multiples: tuple[Field, ...] = tuple(multiples)

    @property
    def field(self) -> str:
        """Its name."""
        return self._field.name

    @property
    def multiples(self) -> tuple[str, ...]:
        return tuple(field.name for field in self._multiples)

    def __get__(self, op: Any, owner: type | None = None) -> Any:
        if op is None:
            return self
        return op.per_call[self.name] if self.name in op.per_call else getattr(op, self.field)


@attrs.frozen
class PerCall:
    """A per-call annotation: `kind` is "scratchpad", "carried" or "dispatch"."""

    kind: str
    dtype: np.dtype
    #: The class it was written with.
    made: str = attrs.field(default="", eq=False)


class PerCallMember(Member, _InBody):
    """What `Scratchpad`, `Carried` and `DispatchTime` share."""

    kind = ""

    def __init__(self, dtype: Any) -> None:
        self.dtype = self.annotate(dtype).dtype

    @classmethod
    def annotate(cls, dtype: Any) -> PerCall:
        """The annotation of this kind; DeclarationError unless the dtype is int32 or uint32."""
        if dtype not in _WORDS:
            shown = getattr(dtype, "__name__", dtype)
            where = f"{in_class()}{cls.__name__}[{shown}]"
            raise DeclarationError(f"{where}: a per-call value is a 32-bit integer; legal: np.int32, np.uint32.")
        return PerCall(cls.kind, np.dtype(dtype), cls.__name__)

    def __class_getitem__(cls, dtype: Any) -> PerCall:
        return cls.annotate(dtype)


class Scratchpad(PerCallMember, Generic[_T]):
    """A per-call integer patched in at call time.

    As an operator's member: `within` is the operand it indexes (in elements) and `count` how many elements from there
    are used; a call whose number leaves the operand is refused before it runs.
    """

    kind = "scratchpad"

    def __init__(self, dtype: type[_T], *, within: Any = None, count: int = 1) -> None:
        super().__init__(dtype)
        self.within = within
        self.count = count


class Carried(PerCallMember, Generic[_T]):
    """A per-call integer the graph computes for its own next call."""

    kind = "carried"


class DispatchTime(PerCallMember, Generic[_T]):
    """A per-call integer that regenerates the instruction sequence (sizes, strides and offsets may follow it)."""

    kind = "dispatch"
