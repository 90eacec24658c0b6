"""The namespace of an operator's class body while that runs: what is read before it is declared, and what is declared twice."""

from __future__ import annotations

import builtins
import difflib
import sys
from typing import Any

from iron_core.declare.field import Field
from iron_core.declare.operand import Operand
from iron_core.declare.value import Member
from iron_core.errors import DeclarationError

#: What a field or a number that shapes are made of can be mistaken for: a module's number of the same name.
_DATA = (int, float, str, tuple, list, Field, Operand)


class Body(dict):
    """What `__prepare__` gives. DeclarationError for a name that is neither declared above nor known to the module, for a second
    declaration of a name, and for one of a name that stood for a number of the module further up."""

    def __init__(self, name: str, bases: tuple[type, ...]) -> None:
        super().__init__()
        self._name = name
        self._bases = bases
        #: The module's data that this body read: in statements that are done, and in the one that runs.
        self._earlier: set[str] = set()
        self._now: set[str] = set()

    def __missing__(self, key: str) -> Any:
        frame = sys._getframe(1)
        if key in frame.f_globals or hasattr(builtins, key):
            if isinstance(frame.f_globals.get(key), _DATA):
                self._now.add(key)
        elif key not in frame.f_code.co_freevars and not key.startswith("__"):
            raise DeclarationError(f"{self._name}: {key} is read and not declared above. {self._advice(key, frame.f_globals)}")
        raise KeyError(key)

    def _advice(self, key: str, module: dict[str, Any]) -> str:
        if key in ("self", self._name):
            return "A class body is read before there is a class: legal: the bare name of what is declared above, as In(n)."
        owner = next((base for base in self._bases if hasattr(base, key)), None)
        if owner is not None:
            return f"It is {owner.__name__}'s: legal: {owner.__name__}.{key}."
        if key in self.get("__annotations__", {}):
            return f"An annotation declares nothing: legal: {key}: int = Param()."
        near = difflib.get_close_matches(key, [*self, *module], 1)
        return f"Legal: {near[0]}, if that is meant." if near else f"Legal: {key}: int = Param() above what is made of it; or an import."

    def __setitem__(self, key: str, value: Any) -> None:
        declared = isinstance(value, (Field, Operand, Member))
        before = self.get(key)
        if isinstance(before, (Field, Operand, Member)) and before is not value:
            second = f"a second {type(value).__name__}" if declared else repr(value)
            raise DeclarationError(f"{self._name}.{key} is declared already, and would be hidden by {second}; legal: each name once.")
        if declared and key in self._earlier:
            raise DeclarationError(
                f"{self._name}.{key} is declared below where {key} is read, which was the module's; legal: {key} above what is made of it."
            )
        if declared and not value.name:
            value.name = key  # for what its own body says of it; Python gives names when the body has run
        self._earlier |= self._now
        self._now.clear()
        super().__setitem__(key, value)
