"""An operator's fields: what a host shape names (`Param`), a tunable (`Auto`), a dtype variable (`DType`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from iron_core.declare.formats import Format, as_format, bfloat16
from iron_core.declare.keywords import declaration, in_class
from iron_core.errors import DeclarationError, FormatError

#: "no default given": None is a legal default.
MISSING: Any = type("Missing", (), {"__repr__": lambda self: "MISSING"})()


_KINDS: dict[Any, tuple[tuple[type, ...], str]] = {
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "bool": ((bool,), "True or False"),
    "str": ((str,), "a string"),
}


def unseen(op: Any, name: str) -> DeclarationError:
    """What array() gets for reading something that depends on an extent."""
    cls: Any = type(op)
    return DeclarationError(
        f"{cls.__name__}.array() reads the extent {name}; one array serves every extent. Legal: {', '.join(sorted(cls.array_tier))}, "
        "and a Value for what depends on an extent."
    )


def _no_number(words: str) -> Callable[..., Any]:
    """What a field answers arithmetic with: in a class body it has no value."""

    def refuse(self: Field, *others: Any) -> Any:
        other = f" {others[0]!r}" if others else ""
        raise DeclarationError(
            f"{in_class()}{self!r} {words}{other}: a field has no value while its class is made. "
            "Legal: a field with a rule, as half: int = Param(default=lambda op: op.size // 2)."
        )

    return refuse


class Field:
    """One field of an operator class. Its name is the attribute it is assigned to."""

    kind = "param"

    def __init__(self, default: Any = MISSING, *, array: bool = False, repr: bool = True) -> None:
        self.name = ""
        self.default = default
        self.array = array
        self.repr = repr
        #: What it is annotated as: int, float, bool and str are held to.
        self.annotation: Any = None

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, op: Any, owner: type | None = None) -> Any:
        """Itself, of the class; an instance holds its own value, but for one that is seen by its array()."""
        if op is None:
            return self
        raise unseen(op, self.name)

    @property
    def required(self) -> bool:
        return self.default is MISSING

    @property
    def computed(self) -> bool:
        """Is the default a rule of the operator (a callable) rather than a value?"""
        return callable(self.default) and not isinstance(self.default, type)

    def convert(self, value: Any) -> Any:
        """The value as the operator keeps it."""
        if isinstance(value, np.generic):
            return value.item()
        return tuple(value) if isinstance(value, list) else value  # values are part of hashable keys

    def misfit(self, value: Any) -> str:
        """Why a converted value cannot be this field's: what would be legal. Empty where it can."""
        types, words = _KINDS.get(getattr(self.annotation, "__name__", self.annotation), ((object,), ""))
        fits = isinstance(value, types) and (bool in types or not isinstance(value, bool))
        return "" if fits else words

    def __repr__(self) -> str:
        made = type(self).__name__.removesuffix("Field")
        return f"{made}({self.name})"

    __add__ = __radd__ = _no_number("+")
    __sub__ = __rsub__ = _no_number("-")
    __mul__ = __rmul__ = _no_number("*")
    __floordiv__ = __rfloordiv__ = _no_number("//")
    __truediv__ = __rtruediv__ = _no_number("/")
    __mod__ = __rmod__ = _no_number("%")
    __pow__ = __rpow__ = _no_number("**")
    __neg__ = _no_number("negated")
    __lt__ = _no_number("<")
    __le__ = _no_number("<=")
    __gt__ = _no_number(">")
    __ge__ = _no_number(">=")
    __bool__ = _no_number("as True or False")
    __index__ = _no_number("as a number")
    __len__ = _no_number("as a length")
    __iter__ = _no_number("taken apart")


class ParamField(Field):
    """What `Param()` makes."""

    def __init__(self, default: Any = MISSING, *, array: bool = False, repr: bool = True, probe: Any = MISSING) -> None:
        super().__init__(default, array=array, repr=repr)
        self.probe = probe


class AutoField(Field):
    """What `Auto()` makes."""

    kind = "auto"

    def __init__(
        self, default: Any = None, *, array: bool = False, domain: Any = None, derived: bool = False, repr: bool = True
    ) -> None:
        super().__init__(default, array=array, repr=repr)
        self.domain = domain
        self.derived = derived

    def misfit(self, value: Any) -> str:
        """A tunable that is a number is at least 1; None leaves it open."""
        words = "" if value is None else super().misfit(value)
        return words or ("at least 1" if isinstance(value, (int, float)) and value < 1 and not isinstance(value, bool) else "")


class DTypeField(Field):
    """What `DType()` makes. Its values are numpy dtypes and, with `blocks`, packed Formats."""

    kind = "dtype"

    def __init__(self, default: Any = bfloat16, *, blocks: bool = False) -> None:
        super().__init__(default)
        self.blocks = blocks

    def convert(self, value: Any) -> Any:
        """From a dtype in any form, a Format or a name. FormatError for none, or a packed format where none is legal."""
        format = as_format(value)
        if format.packed and not self.blocks:
            raise FormatError(f"{self.name}={format.name}: a block format where only a dense dtype is legal.")
        return format.spec

    def format(self, value: Any) -> Format:
        return as_format(value)


@declaration
def Param(default: Any = MISSING, *, array: bool = False, repr: bool = True, probe: Any = MISSING) -> Any:
    """What a host shape names. `default` may be a callable of the operator; a shape may bind it too.

    array: the field belongs to the array tier. repr: whether it appears in the operator's label.
    probe: the value a step is timed at, whatever its own.
    """
    return ParamField(default, array=array, repr=repr, probe=probe)


@declaration
def Auto(
    default: Any = None, *, array: bool = False, domain: Any = None, derived: bool = False, repr: bool = True
) -> Any:
    """A tunable: the call site's value, else the active Profile's, else `resolve(dev)`'s, else `default`.

    domain: what a tuner searches. derived: always filled by `resolve()`, never given or searched.
    """
    return AutoField(default, array=array, domain=domain, derived=derived, repr=repr)


@declaration
def DType(default: Any | Callable[[Any], Any] = bfloat16, *, blocks: bool = False) -> Any:
    """A dtype variable, bound by the operands that carry it. With `blocks=True` a packed Format is legal too."""
    return DTypeField(default, blocks=blocks)
