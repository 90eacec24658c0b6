"""What an operator class declares, gathered when its body finishes."""

from __future__ import annotations

import inspect
from typing import Any

import attr

from iron_core.declare.field import MISSING, AutoField, Field
from iron_core.declare.operand import Operand
from iron_core.declare.value import Extent, Value, _PerCallKind
from iron_core.errors import DeclarationError


def collect(cls: Any, root: type) -> None:
    """Give a class its `fields`, `operands`, `extents`, `scratchpads`, `values` and `array_tier`, those of its bases too, and
    make it a keyword-only attrs class. root: `Operator`, whose own names are not to be taken. DeclarationError."""
    own = {k: v for k, v in vars(cls).items() if isinstance(v, Field)}
    annotations = inspect.get_annotations(cls)
    for name, field in own.items():
        field.annotation = annotations.get(name)
    members = _members(cls)
    cls.fields = {k: v for k, v in members.items() if isinstance(v, Field)}
    every = {k: v for k, v in members.items() if isinstance(v, Operand)}
    inputs = [o for o in every.values() if o.read]
    outputs = [o for o in every.values() if o.role == "out"]
    cls.operands = {o.name: o for o in (*inputs, *outputs)}
    cls.inputs, cls.outputs = tuple(inputs), tuple(o for o in cls.operands.values() if o.written)
    cls.extents = {k: v for k, v in members.items() if isinstance(v, Extent)}
    cls.scratchpads = {k: v for k, v in members.items() if isinstance(v, _PerCallKind)}
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
    cls.array_tier = _tier(cls, every.values())
    these = {
        name: attr.ib(default=None if isinstance(field, AutoField) else MISSING, kw_only=True, repr=field.repr)
        for name, field in own.items()
    }
    attr.s(cls, these=these, kw_only=True, eq=False, init=True, repr=False, slots=False, auto_attribs=False)


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
