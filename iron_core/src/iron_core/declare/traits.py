"""Class attributes that say how an operator may be used: what they name is there, and of the kind that is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from iron_core.declare.field import Field
from iron_core.declare.link import CHAINS
from iron_core.errors import DeclarationError

_WORDS: dict[type, str] = {bool: "True or False", int: "a whole number", str: "a string"}


def check_traits(cls: Any) -> None:
    """DeclarationError for an attribute of another kind, or one that names what the class does not have."""
    where = cls.__name__
    for attribute, value in vars(cls).items():
        inherited = next((vars(base)[attribute] for base in cls.__mro__[1:-1] if attribute in vars(base)), None)
        kind = type(inherited)
        if not attribute.startswith("_") and kind in _WORDS and not isinstance(value, (kind, property, Field)):
            raise DeclarationError(f"{where}.{attribute} = {value!r}; legal: {_WORDS[kind]}, as its base's {inherited!r}.")
    inputs, outputs = [o.name for o in cls.inputs], [o.name for o in cls.outputs]
    for attribute, legal in (("partial", outputs), ("linear_in", inputs), ("folds", CHAINS)):
        _names(where, attribute, getattr(cls, attribute), legal)
    _named(where, "reports", cls.reports, outputs)
    for name, why in cls.reports.items():
        if not isinstance(why, str):
            raise DeclarationError(f"{where}.reports: {name} says {why!r}; legal: what a negative {name} means, in words.")
    _named(where, "accept_views", cls.accept_views, cls.operands)
    for name, members in cls.accept_views.items():
        parts = [getattr(members, part, None) for part in ("pattern", "offset", "valid", "axis")]
        if None in parts or not set(parts) <= {*cls.fields, *cls.scratchpads, *cls.extents}:
            raise DeclarationError(f"{where}.accept_views: {name} by {members!r}; legal: ViewMembers of the class's fields and members.")
    if cls.accept_gather is not None:
        optional = [o.name for o in cls.inputs if o.when is not None]
        _names(where, "accept_gather", (cls.accept_gather,), optional, "an input with when=: ")


def _names(where: str, attribute: str, given: Any, legal: Iterable[str], what: str = "") -> None:
    known = ", ".join(legal) or "none"
    if not isinstance(given, (tuple, list)):
        raise DeclarationError(f"{where}.{attribute} = {given!r}; legal: a tuple of names, as ({given!r},), of {what}{known}.")
    for name in given:
        if name not in set(legal):
            raise DeclarationError(f"{where}.{attribute}: {name!r}; legal: {what}{known}.")


def _named(where: str, attribute: str, given: Any, legal: Iterable[str]) -> None:
    if not isinstance(given, Mapping):
        raise DeclarationError(f"{where}.{attribute} = {given!r}; legal: a dict whose keys are of {', '.join(legal) or 'none'}.")
    _names(where, attribute, tuple(given), legal)
