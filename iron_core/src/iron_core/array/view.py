"""An operator as its `array()` sees it: array-tier fields, streams and values; no extent."""

from __future__ import annotations

from collections.abc import Mapping
from pkgutil import resolve_name
from typing import Any

from iron_core.array.tile import Lane, Tile
from iron_core.array.worker import BoundValue
from iron_core.declare.field import AutoField
from iron_core.declare.link import CHAINS, Link, streamed
from iron_core.declare.objects import ObjectType
from iron_core.declare.operand import Operand
from iron_core.errors import CacheError, DeclarationError


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
        if not isinstance(index, int) or not 0 <= index < self.lanes:
            raise DeclarationError(f"{type(self._op).__name__}.{self.name}: lane {index!r}; legal: 0 to {self.lanes - 1}.")
        return Lane(self.name, index, tile)


def view(op: Any) -> Any:
    """The operator as `array()` is to see it: reading an extent raises DeclarationError, in methods it calls too.

    An instance of its class that holds the fields of the array tier and nothing else; so do the steps of its chains.
    """
    base = op.base
    chains = {
        chain: tuple(Link(_holding(type(link.op), _params(link.op)), link.position) for link in getattr(base, chain)) for chain in CHAINS
    }
    return _seen(type(base), {name: getattr(base, name) for name in base.fields if name in base.array_tier}, chains)


def view_of(key: tuple[Any, ...]) -> Any:
    """The same, from an operator's array key alone: equal keys build one array, so nothing else is needed.

    CacheError where an operator's class cannot be imported by its name.
    """
    name, fields, *chains = key
    cls = _named(name)
    links = {chain: tuple(_link(*one) for one in found) for chain, found in chains}
    return _seen(cls, _converted(cls, fields), {chain: links.get(chain, ()) for chain in CHAINS})


def _link(name: str, fields: tuple[tuple[str, Any], ...], position: int) -> Link:
    cls = _named(name)
    return Link(_holding(cls, _converted(cls, fields)), position)


def _converted(cls: Any, fields: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    """Fields as an operator holds them: a key has the names of dtypes."""
    return {name: None if value is None else cls.fields[name].convert(value) for name, value in fields}


def _named(name: str) -> Any:
    try:
        return resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise CacheError(f"an array of {name} is wanted, and there is no such operator: {error}") from None


def _params(op: Any) -> dict[str, Any]:
    """The fields of a step that its array key has: its tunables are the line's."""
    return {k: getattr(op, k) for k, f in op.fields.items() if k in op.array_tier and not isinstance(f, AutoField)}


def _seen(cls: Any, fields: Mapping[str, Any], chains: Mapping[str, tuple[Link, ...]]) -> Any:
    values = {name: BoundValue(name) for name in cls.values}
    twin = _holding(cls, {**fields, **chains, **values})
    vars(twin).update({name: Stream(operand, twin) for name, operand in (cls.operands | streamed(twin, "finish")).items()})
    return twin


def _holding(cls: Any, held: Mapping[str, Any]) -> Any:
    """An instance of an operator class with these attributes alone."""
    made = object.__new__(cls)
    vars(made).update(held)
    return made
