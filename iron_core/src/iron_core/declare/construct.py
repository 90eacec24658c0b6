"""From field keywords to an operator."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from iron_core.declare.authored import authored
from iron_core.declare.field import AutoField
from iron_core.declare.profile import active_profile
from iron_core.errors import CallError, DeclarationError, ParamError


def construct(cls: Any, given: dict[str, Any]) -> Any:
    """An instance of an operator class from field keywords: what `Operator(...)` by keyword gives. CallError, ParamError."""
    if cls.__abstractmethods__:
        left = ", ".join(f"{name}()" for name in sorted(cls.__abstractmethods__))
        raise CallError(f"{cls.__name__} is a base of operators, which leaves {left} to them; legal: a subclass that has it.")
    for name in given:
        if name in cls.operands:
            raise CallError(f"{cls.__name__}: {name} is a tensor; give it by position, in Graph.body().")
        if name not in cls.fields:
            near = difflib.get_close_matches(name, cls.fields, 1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise CallError(f"{cls.__name__} has no field {name}.{hint} Fields: {', '.join(cls.fields) or 'none'}.")
    # None leaves open what a rule, a profile or resolve() fills; for any other field it is a value.
    keywords = {
        k: v if v is None else cls.fields[k].convert(v)
        for k, v in given.items()
        if v is not None or not (cls.fields[k].computed or isinstance(cls.fields[k], AutoField))
    }
    for name in keywords:
        field = cls.fields[name]
        if isinstance(field, AutoField) and field.derived:
            raise CallError(f"{cls.__name__}.{name} is always derived by resolve(); it cannot be given.")
    profile = active_profile()
    profiled = {} if profile is None else profile.tunables(cls, keywords)
    by_call = keywords.keys()
    keywords = profiled | keywords
    check_kinds(cls, keywords)
    op = type.__call__(cls, **keywords)
    op._given = frozenset(keywords)
    op.pinned = frozenset(k for k in keywords if isinstance(cls.fields[k], AutoField))
    op.profiled = frozenset(profiled.keys() - by_call)
    derive(op)
    _check_dimensions(op)
    with authored(op, "validate()"):
        said(op, "validate()", op.validate())
    if all(getattr(op, name) is not None for name in cls.autos()):
        with authored(op, "compatible()"):
            said(op, "compatible()", op.compatible(None))
    return op


def said(op: Any, method: str, answer: Any) -> None:
    """DeclarationError for a check that answers, where it is to raise."""
    if answer is not None:
        raise DeclarationError(
            f"{type(op).__name__}.{method} returned {answer!r}, which nobody asks for; legal: to raise ParamError for what is wrong "
            "(Unresolvable in compatible()), and return nothing."
        )


def check_kinds(cls: Any, given: Mapping[str, Any]) -> None:
    """ParamError for a number, a flag or a name that is none."""
    for name, value in given.items():
        legal = cls.fields[name].misfit(value)
        if legal:
            raise ParamError(f"{cls.__name__}: {name}={value!r}; legal: {legal}.")


def derive(op: Any) -> None:
    """Fill the fields that were not given: by their defaults, and by their rules."""
    open_ = {k: f for k, f in op.fields.items() if not isinstance(f, AutoField) and k not in op._given}
    missing = [k for k, f in open_.items() if f.required]
    if missing:
        raise CallError(
            f"{type(op).__name__} needs {', '.join(missing)}: give {'them' if len(missing) > 1 else 'it'} "
            "by keyword, or call the class on operands whose shapes say."
        )
    # Plain defaults first, so that a rule may read any of them; rules then run in declaration order.
    for name, field in open_.items():
        if not field.computed:
            setattr(op, name, field.default if field.default is None else field.convert(field.default))
    for name, field in open_.items():
        if field.computed:
            with authored(op, f"{name}'s rule"):
                value = field.default(op)
            if value is None:
                raise DeclarationError(f"{type(op).__name__}.{name}: its rule gave None.")
            kept = field.convert(value)
            if legal := field.misfit(kept):
                raise DeclarationError(f"{type(op).__name__}.{name}: its rule gave {value!r}; legal: {legal}.")
            setattr(op, name, kept)


def _check_dimensions(op: Any) -> None:
    for name in op.present:
        for axis in op.operands[name].axes(op):
            n = getattr(op, axis) if isinstance(axis, str) else axis
            if not isinstance(n, int) or isinstance(n, bool) or n < 1:
                raise ParamError(f"{type(op).__name__}: {axis}={n!r}; a dimension of {name} is a whole number of at least 1.")
