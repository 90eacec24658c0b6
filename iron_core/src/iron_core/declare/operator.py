"""`Operator`: one declared class per operator."""

from __future__ import annotations

import copy
import math
from abc import ABCMeta
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import attrs
import numpy as np

from iron_core.declare.authored import authored
from iron_core.declare.body import Body
from iron_core.declare.construct import check_kinds, construct, derive, said
from iron_core.declare.domain import Placement
from iron_core.declare.field import AutoField, DTypeField, Field
from iron_core.declare.formats import Format
from iron_core.declare.members import collect
from iron_core.declare.operand import Operand
from iron_core.declare.testing import Testing
from iron_core.declare.tilewise import tilewise
from iron_core.declare.tolerance import Deviation, Tolerance
from iron_core.declare.value import Extent, Value
from iron_core.errors import CallError, DeclarationError, ParamError, Unresolvable


def _record(operator: Any, operands: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """Steps are recorded above: this import goes up the list of folders, as a call on handles does."""
    from iron_core.graph.record import record

    return record(operator, operands, keywords)


class OperatorMeta(ABCMeta):
    """Calling an operator class with positional operands records a step; by keyword alone it constructs.

    A class with an @abstractmethod is a base, which neither is made nor needs an output.
    """

    @classmethod
    def __prepare__(cls, name: str, bases: tuple[type, ...], /, **options: Any) -> Body:
        return Body(name, bases)

    if not TYPE_CHECKING:  # a type checker goes by `__new__`: a stub's, which names arguments and result, or `Operator`'s

        def __call__(cls, *operands: Any, **keywords: Any) -> Any:
            if operands:
                return _record(cls, operands, keywords)
            return construct(cls, keywords)


class Operator(metaclass=OperatorMeta):
    """What is computed: fields, operands, extents, a numpy `reference()`; and how far off an answer may be.

    A subclass becomes a keyword-only attrs class when its body finishes, which is when what it declares is checked: an output and a
    reference are needed, unless it leaves one open by @abstractmethod, as a base of operators. Instances compare by identity;
    `iron.contract_key(op)` says which compute the same.
    """

    fields: ClassVar[dict[str, Field]] = {}
    operands: ClassVar[dict[str, Operand]] = {}
    inputs: ClassVar[tuple[Operand, ...]] = ()
    outputs: ClassVar[tuple[Operand, ...]] = ()
    extents: ClassVar[dict[str, Extent]] = {}
    scratchpads: ClassVar[dict[str, Any]] = {}
    values: ClassVar[dict[str, Value]] = {}
    array_tier: ClassVar[frozenset[str]] = frozenset()
    #: Outputs of which a call may write only a part: `reference()` is given them by keyword and returns them whole.
    partial: ClassVar[tuple[str, ...]] = ()
    #: Integer outputs that are negative where a call could not make them -> what that says. A loop that carries one ends there.
    reports: ClassVar[Mapping[str, str]] = {}
    #: Folding traits: how a step may join its producer or its consumers.
    elementwise: ClassVar[bool] = False
    rowwise: ClassVar[bool] = False
    linear_in: ClassVar[tuple[str, ...]] = ()
    #: Chains its array applies, of "finish" and "prepare" (see `iron_core.declare.chained`).
    folds: ClassVar[tuple[str, ...]] = ()
    #: For an operator that takes views: operand name -> its members (see `ViewMembers`).
    accept_views: ClassVar[dict[str, ViewMembers]] = {}
    #: The `when=` operand that receives the ids of `table[ids]`, for an operator that gathers.
    accept_gather: ClassVar[str | None] = None
    test: ClassVar[Testing] = Testing()
    #: The `Xclbin` that holds its array, where nobody here builds it: such an operator runs by itself, on an NPU, or not at all.
    binary: Any = None

    #: Tunables a call or a profile gave: held, not searched.
    pinned: frozenset[str] = frozenset()
    #: Those of them that a profile gave.
    profiled: frozenset[str] = frozenset()
    _given: frozenset[str] = frozenset()
    #: Extent members that read as a call's expression: on twins that `Value.form` makes.
    per_call: Mapping[str, Any] = MappingProxyType({})
    #: The `Link`s its array applies behind the output and in front of the input: those of the `Chained` it is the base of.
    finish: tuple[Any, ...] = ()
    prepare: tuple[Any, ...] = ()
    #: Outputs that calls place in a larger tensor, each with that tensor's elements: likewise.
    placed: tuple[tuple[str, int], ...] = ()

    if TYPE_CHECKING:

        def __new__(cls, *operands: Any, **keywords: Any) -> Any: ...

    def __init_subclass__(cls, **options: Any) -> None:
        try:
            super().__init_subclass__(**options)
        except TypeError:
            if not options:
                raise
            raise DeclarationError(f"class {cls.__name__}(..., {', '.join(options)}=...): no keyword of a class of operators.") from None
        collect(cls, Operator)

    # -- what is known of a class, and copies --------------------------------------------------------

    def check_derived(self, *names: str) -> None:
        """For `validate()`: ParamError where a field that has a rule was given another value than the rule's."""
        for name in names:
            rule = self.fields[name].convert(self.fields[name].default(self))
            if getattr(self, name) != rule:
                given = getattr(self, name)
                raise ParamError(f"{type(self).__name__}: {name}={given}, and the other fields make it {rule}.")

    @classmethod
    def autos(cls) -> tuple[str, ...]:
        """Names of the tunables."""
        return tuple(k for k, f in cls.fields.items() if isinstance(f, AutoField))

    def evolve(self, **changes: Any) -> Any:
        """A copy with these fields changed, no value checked or derived anew: what `resolve()` returns. CallError for a name that
        is no field."""
        twin = copy.copy(self)
        for name, value in changes.items():
            if name not in self.fields:
                raise CallError(f"{type(self).__name__} has no field {name}. Fields: {', '.join(self.fields) or 'none'}.")
            setattr(twin, name, value)
        twin._given = self._given | frozenset(changes)
        return twin

    def bounded(self, **extents: int) -> Any:
        """This operator at the smaller extents of a call. Not validated: a bound may be any number."""
        twin = self.evolve(**extents)
        derive(twin)
        return twin

    def limits(self, bound: Mapping[str, Any]) -> dict[str, Any]:
        """Per field that these members bound, its number (or expression) at the call; other members are passed over."""
        found: dict[str, Any] = {}
        for member, n in bound.items():
            if member in self.extents:
                extent = self.extents[member]
                found[extent.field] = n
                for multiple in extent.multiples:
                    found[multiple] = n * (getattr(self, multiple) // getattr(self, extent.field))
        return found

    def with_tunables(self, **tunables: Any) -> Any:
        """An unresolved copy with these tunables given; None leaves one open. CallError for another name, ParamError for a value."""
        settable = [n for n in self.autos() if not self.fields[n].derived]  # type: ignore[attr-defined]
        for name in tunables:
            if name not in settable:
                known = ", ".join(settable) or "none"
                raise CallError(f"{type(self).__name__} has no tunable {name}. Tunables: {known}.")
        tunables = {name: self.fields[name].convert(value) for name, value in tunables.items()}
        check_kinds(type(self), tunables)
        twin = self.evolve(**tunables)
        twin.profiled = self.profiled - tunables.keys()
        twin.pinned = self.pinned - tunables.keys() | {name for name, value in tunables.items() if value is not None}
        return twin

    def __call__(self, *operands: Any, **keywords: Any) -> Any:
        return _record(self, operands, keywords)

    # -- what a subclass may define ----------------------------------------------------------------

    def validate(self) -> None:
        """Refuse, with `ParamError`, fields that are wrong mathematically, on any backend."""

    def compatible(self, dev: Any) -> None:
        """Refuse, with `Unresolvable`, extents that do not fit the resolved tunables, or tunables that no `dev` takes. dev:
        None while an operator is made with every tunable given; the device is chosen later."""

    def resolve(self, dev: Any) -> Any:
        """A copy (`self.evolve(...)`) with tunables filled from device and extents; `Auto` defaults fill the rest."""
        return self.evolve()

    def array(self, target: Any) -> None:
        """Build the array: fifos, workers, buffers (see `iron_core.array`). Sees array-tier fields alone; an operator
        without one runs on the CPU only."""
        raise DeclarationError(f"{type(self).__name__} declares no array().")

    def sequence(self, rt: Any) -> None:
        """Record the runtime sequence on `rt` (`iron_core.array.runtime.Runtime`), where the derived one will not do."""
        raise DeclarationError(f"{type(self).__name__} declares no sequence(); it is derived from its operands.")

    def composed(self, *inputs: Any, **scratchpads: Any) -> Any:
        """The outputs as its kernels' tile references, composed in numpy the way the array composes them, give them:
        what a simulated array equals bit for bit. Inputs as for `reference()`; outputs rounded. By default `tilewise`."""
        if scratchpads:
            raise DeclarationError(f"{type(self).__name__} declares no composed(); the default takes no {', '.join(scratchpads)}.")
        return tilewise(self, inputs)

    def array_remark(self) -> str:
        """What `explain()` says besides of the array of a resolved operator, such as that it reads more than a call needs; by default
        nothing."""
        return ""

    def chain_line(self, chain: str) -> int:
        """How many elements a step of "finish" or "prepare" is given at a time, on a resolved operator."""
        raise DeclarationError(f"{type(self).__name__} declares no chain_line().")

    def absorbed(self, consumer: Any) -> Any:
        """This operator with a step behind it in fields of its own: a copy that makes the same bits as both; None where it has no
        field for that step."""
        return None

    def reference(self, *inputs: Any, **scratchpads: Any) -> Any:
        """What the outputs are, in numpy, unrounded. Inputs in declaration order; an absent optional one is None."""
        raise DeclarationError(f"{type(self).__name__} declares no reference().")

    def magnitude(self, *inputs: Any, **scratchpads: Any) -> Any:
        """Sum of the absolute values of the terms each output adds up: what its float32 error is relative to.

        float64, one array per output (a tuple for several). None: the output's own absolute value.
        """
        return None

    def tolerance(self) -> Tolerance:
        """How far from the exact result an output may be; see `Tolerance`."""
        return Tolerance()

    def ops(self) -> int:
        """Arithmetic operations of one call, for rates."""
        return 0

    # -- what is known of an instance --------------------------------------------------------------

    @property
    def base(self) -> Any:
        """The plain operator: itself; of a `Chained` the one its steps are folded into."""
        return self

    @property
    def present(self) -> tuple[str, ...]:
        """Names of the operands it has."""
        return tuple(name for name, operand in self.operands.items() if operand.present(self))

    def shape(self, operand: str) -> tuple[int, ...]:
        """The shape of the operand of this name."""
        return self.operands[operand].shape(self)

    def format(self, operand: str) -> Format:
        """The Format of the operand of this name."""
        return self.operands[operand].format(self)

    def resolved(self, dev: Any = None) -> Any:
        """This operator with every tunable filled: call site, profile, `resolve(dev)`, then the `Auto` default.

        dev: a `Device` or its name; the current device where it is left out, and no device where there is none.
        """
        from iron_core.devices import current_device, device  # here: declaring operators needs no devices

        dev = current_device() if dev is None else device(dev)
        twin: Any = self
        if any(getattr(self, name) is None for name in self.autos()):
            with authored(self, "resolve()"):
                twin = self.resolve(dev)
            if twin is self or type(twin) is not type(self):
                shown = "self" if twin is self else repr(twin)
                raise DeclarationError(f"{type(self).__name__}.resolve() returned {shown}; return a copy, as self.evolve(...) gives it.")
            for name in self.autos():
                field = self.fields[name]
                if getattr(twin, name) is None:
                    setattr(twin, name, field.default(twin) if field.computed else field.default)
                if getattr(self, name) is not None and getattr(twin, name) != getattr(self, name):
                    raise DeclarationError(f"{type(self).__name__}.resolve() changed {name}, which was given.")
        still = [name for name in self.autos() if getattr(twin, name) is None]
        if still:
            raise Unresolvable(f"{type(self).__name__}: no value for {', '.join(still)} on {dev}; give it by keyword.")
        for name in self.autos():
            domain = self.fields[name].domain  # type: ignore[attr-defined]
            if isinstance(domain, Placement):
                domain.pins(getattr(twin, name), name)
        with authored(self, "compatible()"):
            said(self, "compatible()", twin.compatible(dev))
        return twin

    def explain(self, dev: Any = None, bound: Iterable[str] = ()) -> str:
        """What it is on a device's array, for people; see `iron_core.explain`."""
        from iron_core.array.explain import explain  # one of the seams

        return explain(self, dev, bound)

    def check(self, outputs: Any, exact: Any, *inputs: Any) -> Deviation:
        """Judge outputs against the exact ones; DeviationError if any element is out of bounds.

        outputs, exact: an array or a tuple of them, in the order of `outputs`. inputs: as for `reference()`.
        """
        written = [o for o in self.outputs if o.present(self)]
        got = outputs if isinstance(outputs, tuple) else (outputs,)
        want = exact if isinstance(exact, tuple) else (exact,)
        with authored(self, "magnitude()"):
            magnitude = self.magnitude(*inputs)
        magnitudes = magnitude if isinstance(magnitude, tuple) else (magnitude,) * len(written)
        with authored(self, "tolerance()"):
            tolerance = self.test.tolerance or self.tolerance()
        if not isinstance(tolerance, Tolerance):
            raise DeclarationError(f"{type(self).__name__}.tolerance() gives {tolerance!r}; legal: a Tolerance.")
        for operand, m in zip(written, magnitudes, strict=False):
            if m is not None and np.size(m) not in (1, math.prod(np.shape(want[0])) if len(want) == 1 else np.size(m)):
                found, shape = list(np.shape(m)), list(np.shape(want[0]))
                raise DeclarationError(f"{type(self).__name__}.magnitude() returned {found} for {operand.name}, which is {shape}.")
        worst = Deviation()
        for operand, g, w, m in zip(written, got, want, magnitudes, strict=True):
            format = operand.format(self)
            what = f"{type(self).__name__}.{operand.name}"
            if format.packed:
                worst = worst.worse(tolerance.check(g.data, w.data, g.data.dtype, None, what))
            else:
                worst = worst.worse(tolerance.check(g, w, format.dtype, m, what))
        return worst

    def array_error(self, *inputs: Any) -> Any:
        """How far from the exact output an array's may be, float64 per element, where its kernels are allowed more than the
        contract; None where they are not. Of an operator with one output."""
        return None

    def array_check(self, outputs: Any, exact: Any, *inputs: Any) -> Deviation:
        """Judge what an array gave: its gate. The contract's, unless there is an `array_error`."""
        radius = self.array_error(*inputs)
        if radius is None:
            return self.check(outputs, exact, *inputs)
        (operand,) = (o for o in self.outputs if o.present(self))
        what = f"{type(self).__name__}.{operand.name}"
        return Tolerance.within(radius).check(outputs, exact, operand.format(self).dtype, None, what)

    def __repr__(self) -> str:
        shown = []
        for name, field in self.fields.items():
            value = vars(self).get(name)  # array() sees some of them only
            if field.repr and value is not None:
                shown.append(f"{name}={value.name if isinstance(field, DTypeField) else value!r}")
        return f"{type(self).__name__}({', '.join(shown)})"


@attrs.frozen
class ViewMembers:
    """The members that carry a view of one operand: its pattern field, offset member, bound member and the field
    naming the bounded axis; for an operand that may be a gather, the field holding the rows of its table."""

    pattern: str
    offset: str
    valid: str
    axis: str
    rows: str = ""
