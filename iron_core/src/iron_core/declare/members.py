"""What an operator class declares, gathered when its body finishes."""

from __future__ import annotations

import inspect
from typing import Any

import attr

from iron_core.declare.domain import Domain
from iron_core.declare.field import MISSING, Auto, AutoField, DType, Field, Param
from iron_core.declare.link import CHAINS
from iron_core.declare.operand import In, InOut, Operand, Out
from iron_core.declare.testing import Testing
from iron_core.declare.value import Extent, PerCallMember, Value
from iron_core.errors import DeclarationError, FormatError

#: What makes declarations, and is none itself.
_FACTORIES = (Param, Auto, DType, In, Out, InOut)


def collect(cls: Any, root: type) -> None:
    """Give a class its `fields`, `operands`, `extents`, `scratchpads`, `values` and `array_tier`, those of its bases too, and
    make it a keyword-only attrs class. root: `Operator`, whose own names are not to be taken. DeclarationError."""
    own = {k: v for k, v in vars(cls).items() if isinstance(v, Field)}
    annotations = inspect.get_annotations(cls)
    for name, field in own.items():
        field.annotation = annotations.get(name)
    _slips(cls, own)
    members = _members(cls)
    cls.fields = {k: v for k, v in members.items() if isinstance(v, Field)}
    every = {k: v for k, v in members.items() if isinstance(v, Operand)}
    inputs = [o for o in every.values() if o.read]
    outputs = [o for o in every.values() if o.role == "out"]
    cls.operands = {o.name: o for o in (*inputs, *outputs)}
    cls.inputs, cls.outputs = tuple(inputs), tuple(o for o in cls.operands.values() if o.written)
    cls.extents = {k: v for k, v in members.items() if isinstance(v, Extent)}
    cls.scratchpads = {k: v for k, v in members.items() if isinstance(v, PerCallMember)}
    cls.values = {k: v for k, v in members.items() if isinstance(v, Value)}
    for name in (*cls.fields, *cls.operands, *cls.extents, *cls.scratchpads, *cls.values):
        if hasattr(root, name):
            raise DeclarationError(f"{cls.__name__}.{name}: the name is Operator's own; choose another.")
    for extent in cls.extents.values():
        for name in (extent.field, *extent.multiples):
            if name not in cls.fields:
                raise DeclarationError(f"{cls.__name__}.{extent.name}: `{name}` is not a field of the class.")
    for operand in every.values():
        operand.check(cls)
    _named(cls)
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
    if inspect.isfunction(vars(cls).get("__init__")):
        raise DeclarationError(f"{where}.__init__: an operator is made of its fields. Legal: fields with rules, and validate().")
    if not isinstance(cls.test, Testing):
        raise DeclarationError(f"{where}.test is {cls.test!r}; legal: Testing(Case(...), ...).")
    seen: dict[int, str] = {}
    for name, member in vars(cls).items():
        if isinstance(member, (Field, Operand)) and seen.setdefault(id(member), name) != name:
            raise DeclarationError(f"{where}.{name} is {where}.{seen[id(member)]} by another name; each has a declaration of its own.")
    for name, field in own.items():
        if isinstance(field, AutoField) and field.domain is not None and not isinstance(field.domain, Domain):
            raise DeclarationError(f"{where}.{name}: domain={field.domain!r}; legal: a Divisors, Width, Choices or Placement.")
        if not field.required and not field.computed and field.default is not None:
            try:
                legal = field.misfit(field.convert(field.default))
            except FormatError as error:
                raise DeclarationError(f"{where}.{name}: {error}") from None
            if legal:
                raise DeclarationError(f"{where}.{name}: default {field.default!r}; legal: {legal}.")


def _named(cls: Any) -> None:
    """Class attributes that name operands name those there are."""
    for attribute, legal in (("partial", [o.name for o in cls.outputs]), ("linear_in", [o.name for o in cls.inputs])):
        for name in getattr(cls, attribute):
            if name not in legal:
                raise DeclarationError(f"{cls.__name__}.{attribute}: {name!r}; legal: {', '.join(legal) or 'none'}.")
    for name in cls.folds:
        if name not in CHAINS:
            raise DeclarationError(f"{cls.__name__}.folds: {name!r}; legal: {', '.join(CHAINS)}.")
    for name in (*cls.accept_views, *([cls.accept_gather] if cls.accept_gather is not None else ())):
        if name not in cls.operands:
            attribute = "accept_views" if name in cls.accept_views else "accept_gather"
            raise DeclarationError(f"{cls.__name__}.{attribute}: {name!r}; legal: {', '.join(cls.operands) or 'none'}.")


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
