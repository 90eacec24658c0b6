"""An operator as its `array()` sees it: array-tier fields, streams and values; no extent."""

from __future__ import annotations

from functools import cache
from typing import Any

from iron_core.array.placement import Lane, Tile
from iron_core.array.worker import BoundValue
from iron_core.declare.objects import ObjectType
from iron_core.declare.operand import Operand
from iron_core.declare.operator import OperatorMeta
from iron_core.errors import DeclarationError


class Stream:
    """An operand as a stream into the array."""

    def __init__(self, operand: Operand, op: Any) -> None:
        self.name = operand.name
        self.depth = operand.depth
        self._operand = operand
        self._op = op

    @property
    def tile(self) -> ObjectType:
        """What one object of its fifo holds."""
        return self._operand.tile_type(self._op)

    @property
    def lanes(self) -> int:
        return self._operand.lanes(self._op)

    def lane(self, index: int, tile: Tile | None = None) -> Lane:
        """The shim-side end of lane `index`: for `prod(tile=)` or `cons(tile=)`."""
        if self._operand.tile is None:
            raise DeclarationError(f"{type(self._op).__name__}.{self.name} has no tile=; it is no stream of its own.")
        if not 0 <= index < self.lanes:
            raise DeclarationError(f"{type(self._op).__name__}.{self.name}: lane {index}; legal: 0 to {self.lanes - 1}.")
        return Lane(self.name, index, tile)


@cache
def _view_class(cls: type) -> type:
    def read(self: Any, name: str) -> Any:
        if name.startswith("__"):
            return object.__getattribute__(self, name)
        if name in cls.fields and name not in cls.array_tier:  # type: ignore[attr-defined]
            raise TypeError(
                f"{cls.__name__}.array() reads the extent {name}; one array serves every extent. Legal: "
                f"{', '.join(sorted(cls.array_tier))}, and a Value for what depends on an extent."  # type: ignore[attr-defined]
            )
        if name in cls.extents:  # type: ignore[attr-defined]
            raise TypeError(f"{cls.__name__}.array() reads the extent {name}; one array serves every extent.")
        if name in cls.values:  # type: ignore[attr-defined]
            return BoundValue(name)
        if name in cls.operands:  # type: ignore[attr-defined]
            return Stream(cls.operands[name], self)  # type: ignore[attr-defined]
        return object.__getattribute__(self, name)

    def show(self: Any) -> str:
        shown = (f"{name}={getattr(self, name)!r}" for name in cls.fields if name in cls.array_tier)  # type: ignore[attr-defined]
        return f"{cls.__name__}({', '.join(shown)}), seen by its array()"

    members = {"__getattribute__": read, "__repr__": show}
    made = type.__new__(OperatorMeta, cls.__name__, (cls,), members, view=True)
    made.__qualname__, made.__module__ = cls.__qualname__, cls.__module__
    return made


def view(op: Any) -> Any:
    """The operator as `array()` is to see it: reading an extent raises TypeError, in methods it calls too."""
    twin = op.evolve()
    twin.__class__ = _view_class(type(op))  # type: ignore[arg-type]
    return twin
