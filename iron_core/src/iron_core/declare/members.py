"""What an operator class declares, gathered when its body finishes."""

from __future__ import annotations

import inspect
import re
from typing import Any

import attr

from iron_core.declare.callables import takes
from iron_core.declare.domain import Domain
from iron_core.declare.field import MISSING, Auto, AutoField, DType, Field, Param, ParamField
from iron_core.declare.methods import check_made, check_methods, check_names
from iron_core.declare.operand import In, InOut, Operand, Out
from iron_core.declare.testing import CASE_KEYWORDS, Testing
from iron_core.declare.traits import check_traits
from iron_core.declare.value import Carried, DispatchTime, Extent, Member, PerCall, PerCallMember, Scratchpad, Value
from iron_core.errors import DeclarationError, FormatError

#: What makes declarations, and is none itself.
_FACTORIES = (Param, Auto, DType, In, Out, InOut, Value, Extent, Scratchpad, Carried, DispatchTime, Testing)


def collect(cls: Any, root: type) -> None:
    """Give a class its `fields`, `operands`, `extents`, `scratchpads`, `values` and `array_tier`, those of its bases too, and
    make it a keyword-only attrs class. root: `Operator`, whose own names are not to be taken. DeclarationError."""
    if "__attrs_attrs__" in vars(cls) or "__dataclass_fields__" in vars(cls):
        raise DeclarationError(f"{cls.__name__} is decorated as an attrs class or a dataclass, and is one already; legal: no decorator.")
    check_names(cls, root)
    own = {k: v for k, v in vars(cls).items() if isinstance(v, Field)}
    annotations = inspect.get_annotations(cls)
    for name, field in own.items():
        field.annotation = annotations.get(name)
    _slips(cls, own)
    _annotated(cls, annotations, root)
    members = _members(cls)
    declared = {k: v for k, v in members.items() if isinstance(v, (Field, Operand, Member))}
    for name in declared:
        if hasattr(root, name):
            raise DeclarationError(f"{cls.__name__}.{name}: the name is Operator's own; choose another.")
        if name.startswith("_"):
            raise DeclarationError(f"{cls.__name__}.{name}: a declaration's name begins with a letter, for calls give it by keyword.")
    cls.fields = {k: v for k, v in declared.items() if isinstance(v, Field)}
    every = {k: v for k, v in declared.items() if isinstance(v, Operand)}
    inputs = [o for o in every.values() if o.read]
    outputs = [o for o in every.values() if o.role == "out"]
    cls.operands = {o.name: o for o in (*inputs, *outputs)}
    cls.inputs, cls.outputs = tuple(inputs), tuple(o for o in cls.operands.values() if o.written)
    cls.extents = {k: v for k, v in declared.items() if isinstance(v, Extent)}
    cls.scratchpads = {k: v for k, v in declared.items() if isinstance(v, PerCallMember)}
    cls.values = {k: v for k, v in declared.items() if isinstance(v, Value)}
    for field in own.values():
        _check_field(cls, field)
    for operand in every.values():
        operand.check(cls)
    _check_members(cls)
    check_traits(cls)
    check_methods(cls, root)
    check_made(cls, root)
    cls.test.check(cls)
    cls.array_tier = _tier(cls, every.values())
    these = {
        name: attr.ib(default=None if isinstance(field, AutoField) else MISSING, kw_only=True, repr=field.repr)
        for name, field in own.items()
    }
    attr.s(cls, these=these, kw_only=True, eq=False, init=True, repr=False, slots=False, auto_attribs=False)


def _slips(cls: Any, own: dict[str, Field]) -> None:
    """What looks like a declaration and is none."""
    where = cls.__name__
    for name, member in vars(cls).items():
        if any(member is f for f in _FACTORIES):
            raise DeclarationError(f"{where}.{name} is {member.__name__} itself; call it, as in {name} = {member.__name__}(...).")
        if isinstance(member, PerCall):
            raise DeclarationError(
                f"{where}.{name}: {member.made}[...] annotates a keyword of a graph's body; legal here: {name} = "
                f"{member.made}(np.{member.dtype})."
            )
        if isinstance(member, Testing) and name != "test":
            raise DeclarationError(f"{where}.{name} is a Testing, which is looked for as {where}.test; legal: test = Testing(...).")
    if inspect.isfunction(vars(cls).get("__init__")):
        raise DeclarationError(f"{where}.__init__: an operator is made of its fields. Legal: fields with rules, and validate().")
    if not isinstance(cls.test, Testing):
        raise DeclarationError(f"{where}.test is {cls.test!r}; legal: Testing(Case(...), ...).")
    seen: dict[int, str] = {}
    for name, member in vars(cls).items():
        if isinstance(member, (Field, Operand)) and seen.setdefault(id(member), name) != name:
            raise DeclarationError(f"{where}.{name} is {where}.{seen[id(member)]} by another name; each has a declaration of its own.")


def _annotated(cls: Any, annotations: dict[str, Any], root: type) -> None:
    """An annotation alone, or with a plain value, declares no field."""
    for name, annotation in annotations.items():
        shown = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
        if "ClassVar" in str(annotation) or hasattr(root, name) or name.startswith("_"):
            continue
        member = vars(cls).get(name, MISSING)
        per_call = annotation.made if isinstance(annotation, PerCall) else re.match(r"(?:\w+\.)*(Scratchpad|Carried|DispatchTime)\[", shown)
        if member is MISSING and per_call:
            kind = per_call if isinstance(per_call, str) else per_call[1]
            legal = f"{name} = {kind}(np.int32)"
            raise DeclarationError(f"{cls.__name__}.{name}: {kind}[...] annotates a keyword of a graph's body; legal: {legal}.")
        call = re.fullmatch(r"((?:\w+\.)*(?:In|Out|InOut|Param|Auto|DType|Extent|Value))\[(.*)\]", shown)
        if member is MISSING and call:
            legal = f"{name} = {call[1]}({call[2]})"
            raise DeclarationError(f"{cls.__name__}.{name}: {shown} is an annotation, which declares nothing; legal: {legal}.")
        if member is MISSING and not isinstance(getattr(cls, name, None), (Field, Operand, Member)):
            raise DeclarationError(f"{cls.__name__}.{name}: {shown} declares nothing; legal: {name}: {shown} = Param().")
        if member is not MISSING and not isinstance(member, (Field, Operand, Member)):
            raise DeclarationError(
                f"{cls.__name__}.{name} = {member!r} is no field; legal: {name}: {shown} = Param(default={member!r}), "
                f"or ClassVar[{shown}] of what no call gives."
            )


def _check_field(cls: Any, field: Field) -> None:
    where = f"{cls.__name__}.{field.name}"
    if field.name in CASE_KEYWORDS:
        raise DeclarationError(f"{where}: Case(...) has a keyword of that name, so no case could give the field; choose another.")
    if isinstance(field, AutoField) and field.domain is not None:
        if not isinstance(field.domain, Domain):
            raise DeclarationError(f"{where}: domain={field.domain!r}; legal: a Divisors, Width, Choices or Placement.")
        field.domain.check(where, cls)
    if field.computed and not takes(field.default, 1):
        raise DeclarationError(f"{where}: its rule takes something else than the operator; legal: default=lambda op: ...")
    values = [] if field.required or field.computed or field.default is None else [("default", field.default)]
    if isinstance(field, ParamField) and field.probe is not MISSING:
        values.append(("probe", field.probe))
    for keyword, value in values:
        try:
            kept = field.convert(value)
            hash(kept)
        except FormatError as error:
            raise DeclarationError(f"{where}: {error}") from None
        except TypeError:
            raise DeclarationError(
                f"{where}: {keyword} {value!r} can be changed, and is one for all operators; legal: a number, a string, a tuple of "
                "them, or a rule, default=lambda op: ..."
            ) from None
        if legal := field.misfit(kept):
            raise DeclarationError(f"{where}: {keyword} {value!r}; legal: {legal}.")


def _check_members(cls: Any) -> None:
    """Extents and per-call numbers speak of what the class has."""
    for extent in cls.extents.values():
        for name in (extent.field, *extent.multiples):
            if name not in cls.fields:
                known = ", ".join(cls.fields) or "none"
                raise DeclarationError(f"{cls.__name__}.{extent.name}: `{name}` is not a field of the class. Fields: {known}.")
    bounding: dict[str, str] = {}
    for extent in cls.extents.values():
        if bounding.setdefault(extent.field, extent.name) != extent.name:
            other = bounding[extent.field]
            raise DeclarationError(f"{cls.__name__}.{extent.name}: {extent.field} is bounded by {other} already; legal: one Extent each.")
    for name, member in cls.scratchpads.items():
        within = getattr(member, "within", None)
        if within is not None and (not isinstance(within, Operand) or within.name not in cls.operands):
            raise DeclarationError(f"{cls.__name__}.{name}: within={within!r}; legal: an operand of the class, as declared above it.")


def _members(cls: type) -> dict[str, Any]:
    """Those of a class and its bases; a subclass's hide its bases', but for fields."""
    members: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        for name, member in vars(base).items():
            if isinstance(members.get(name), Field) and not isinstance(member, Field):
                raise DeclarationError(f"{cls.__name__}.{name} hides a field; give it a default instead.")
            if not name.startswith("__"):
                members[name] = member
    return members


def _tier(cls: Any, operands: Any) -> frozenset[str]:
    """The fields that an array depends on: those that say so, and what streams are made of."""
    tier = {k for k, f in cls.fields.items() if f.array}
    for operand in operands:
        if operand.tile is None:
            continue
        tile = operand.tile if isinstance(operand.tile, tuple) else (operand.tile,)
        streamed = (*tile, *(operand.per or ()), operand.when, operand.dtype)
        tier |= {part.name for part in streamed if isinstance(part, Field)}
    return frozenset(tier)
