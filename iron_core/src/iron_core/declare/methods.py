"""The methods of an operator class that Iron calls: what they are given, by whom they may be defined, which names are Iron's own."""

from __future__ import annotations

import difflib
import inspect
from typing import Any

from iron_core.declare.callables import binds, signature
from iron_core.errors import DeclarationError

#: What of `Operator` a subclass does not define.
SEALED = frozenset(
    {
        *("fields", "operands", "inputs", "outputs", "extents", "scratchpads", "values", "array_tier", "autos", "pinned", "profiled"),
        *("_given", "per_call", "finish", "prepare", "placed", "base", "present", "shape", "format", "evolve", "limits"),
        *("with_tunables", "resolved", "explain", "check", "check_derived", "__new__", "__call__", "__eq__", "__hash__", "__slots__"),
    }
)
#: Of these an operator's inputs are the arguments.
GIVEN_INPUTS = ("reference", "magnitude", "composed", "array_error")


def is_abstract(member: Any) -> bool:
    """Is this marked @abstractmethod?"""
    return getattr(member, "__isabstractmethod__", False)


def check_names(cls: type, root: type) -> None:
    """DeclarationError where a class body, or a mixin's, takes a name of Iron's."""
    mixed = [name for base in cls.__mro__[1:-1] if not issubclass(base, root) for name in vars(base) if not name.startswith("__")]
    for name in (*vars(cls), *mixed):
        if name in SEALED and not (name == "__hash__" and vars(cls)[name] is None):
            raise DeclarationError(f"{cls.__name__}.{name}: the name is Operator's own; choose another.")


def check_methods(cls: Any, root: type) -> None:
    """DeclarationError where a class hides a method of a mixin, or defines one that Iron's call does not fit."""
    _check_order(cls, root)
    base_names = {name for base in cls.__mro__[1:-1] for name in vars(base) if not name.startswith("_")}
    for name in sorted(base_names):
        defined = [base for base in cls.__mro__ if name in vars(base)]
        if len(defined) > 1 and inspect.isfunction(vars(defined[-1])[name]):
            _check_method(cls, name, vars(defined[0])[name], vars(defined[-1])[name])


def check_made(cls: Any, root: Any) -> None:
    """DeclarationError unless a class has an output, a reference and what its bases leave to it, or leaves something open itself."""
    if any(is_abstract(member) for member in vars(cls).values()):
        return
    base = "a base of operators marks what it leaves open @abstractmethod"
    if not cls.outputs:
        raise DeclarationError(f"{cls.__name__} has no output; legal: at least one, as y = Out(n); {base}.")
    if is_abstract(cls.reference) or (cls.reference is root.reference and cls.binary is None):
        own = [name for base in cls.__mro__[:-1] if base is not root for name, m in vars(base).items() if inspect.isfunction(m)]
        near = [name for name in difflib.get_close_matches("reference", own, 3) if name != "reference"]
        hint = f" {near[0]}() is not it." if near else ""
        raise DeclarationError(f"{cls.__name__} has no reference().{hint} Legal: def {_head(cls, 'reference')}, in numpy; {base}.")
    for name in sorted({name for base in cls.__mro__[1:] for name, member in vars(base).items() if is_abstract(member)}):
        if is_abstract(inspect.getattr_static(cls, name)):
            raise DeclarationError(f"{cls.__name__} has no {name}(), which its base leaves open; {base}.")


def _check_order(cls: type, root: type) -> None:
    """A mixin stands in front of the class whose methods it replaces."""
    mro = cls.__mro__[:-1]
    for place, behind in enumerate(mro[mro.index(root) + 1 :], mro.index(root) + 1):
        for name, member in vars(behind).items():
            front = next((base for base in mro[:place] if name in vars(base) and not issubclass(base, behind)), None)
            if front is not None and not name.startswith("_") and inspect.isfunction(member):
                raise DeclarationError(
                    f"{cls.__name__}: {behind.__name__}.{name}() is hidden by {front.__name__}'s, which stands in front of it; "
                    f"legal: class {cls.__name__}({behind.__name__}, {cls.__bases__[0].__name__})."
                )


def _check_method(cls: Any, name: str, member: Any, base: Any) -> None:
    if isinstance(member, property) or not callable(getattr(member, "__func__", member)):
        shown = "a property" if isinstance(member, property) else repr(member)
        raise DeclarationError(f"{cls.__name__}.{name} is {shown}; legal: a method, def {_head(cls, name, base)}.")
    bound = not (inspect.isfunction(member) or inspect.isdatadescriptor(member))  # a staticmethod, a function written in C
    known = signature(getattr(member, "__func__", member))
    if known is None:
        return
    count, keywords = _given(cls, name, base)
    itself = 0 if bound and not isinstance(member, classmethod) else 1
    legal = _head(cls, name, base)
    if not binds(known, itself + count, *keywords):
        raise DeclarationError(f"{cls.__name__}.{name}{known} does not take what it is given; legal: def {legal}.")
    inputs = [operand.name for operand in cls.inputs] if name in GIVEN_INPUTS else []
    taken = [p.name for p in known.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)][itself:]
    for at, (have, want) in enumerate(zip(taken, inputs, strict=False)):
        if have != want and have in inputs:
            raise DeclarationError(f"{cls.__name__}.{name}{known}: argument {at + 1} is {want}, not {have}; legal: def {legal}.")


def _given(cls: Any, name: str, base: Any) -> tuple[int, tuple[str, ...]]:
    """How many arguments it is given by position, and which by keyword."""
    if name not in GIVEN_INPUTS:
        known = inspect.signature(base).parameters.values()
        return sum(p.kind is p.POSITIONAL_OR_KEYWORD and p.default is p.empty for p in known) - 1, ()
    partial = [n for n in cls.partial if n not in {operand.name for operand in cls.inputs}]
    return len(cls.inputs), (*cls.scratchpads, *partial) if name == "reference" else ()


def _head(cls: Any, name: str, base: Any = None) -> str:
    """How the method is written: "reference(self, x, y)"."""
    if name not in GIVEN_INPUTS:
        return f"{name}{inspect.signature(base).replace(return_annotation=inspect.Signature.empty)}".replace(": 'Any'", "")
    _, keywords = _given(cls, name, base)
    last = max((i for i, operand in enumerate(cls.inputs) if operand.when is None), default=-1)
    positional = [f"{o.name}=None" if i > last else o.name for i, o in enumerate(cls.inputs)]
    return f"{name}({', '.join(['self', *positional, *(['*', *keywords] if keywords else [])])})"
