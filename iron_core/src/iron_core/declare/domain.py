"""Domains: what a tuner may try for a tunable. Asked of the resolved operator, so its own value is among them."""

from __future__ import annotations

import abc
import enum
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from iron_core.declare.authored import authored
from iron_core.declare.callables import spelled, takes
from iron_core.declare.field import AutoField
from iron_core.declare.keywords import declaration
from iron_core.declare.rules import require_operator
from iron_core.errors import CallError, DeclarationError, Unresolvable

if TYPE_CHECKING:
    from iron_core.devices import Device


def _given(rule: Any, op: Any, dev: Any) -> Any:
    """What a domain was given, or what its callable of (op) or (op, dev) gives."""
    if not callable(rule):
        return rule
    with authored(op, "domain"):
        return rule(op, dev) if _arity(rule) == 2 else rule(op)


@functools.cache
def _arity(rule: Callable[..., Any]) -> int:
    return len(inspect.signature(rule).parameters)


class Domain(abc.ABC):
    """Base of the domains. `when` names a bool field: the domain is searched only where it is true."""

    when: str | None = None

    def check(self, where: str, cls: Any) -> None:
        """DeclarationError, which names the tunable (`where`), unless this is a domain for one of an operator class."""
        if self.when is not None and self.when not in cls.fields:
            known = ", ".join(cls.fields) or "none"
            raise DeclarationError(f"{where}: domain's when={self.when!r}; legal: a bool field's name, of {known}.")

    def _check_rules(self, where: str, kinds: type | tuple[type, ...], legal: str, **rules: Any) -> None:
        for name, rule in rules.items():
            if not (takes(rule, 1, 2) if callable(rule) else isinstance(rule, kinds) and not isinstance(rule, (bool, str))):
                raise DeclarationError(
                    f"{where}: domain's {name}={spelled(rule)}; legal: {legal}, or a callable of (op) or (op, dev), as lambda op: op.size."
                )

    @abc.abstractmethod
    def values(self, op: Any, name: str, dev: Any) -> tuple[Any, ...]:
        """The values to try, the operator's own first unless the domain has an order of its own."""


@declaration
@attrs.frozen
class Width(Domain):
    """Counts of columns, channels or cores: its own and every power of two up to the device's columns, widest first."""

    when: str | None = None

    def values(self, op: Any, name: str, dev: Any) -> tuple[Any, ...]:
        powers = {1 << k for k in range(dev.columns.bit_length())}
        return tuple(sorted(powers | {getattr(op, name)}, reverse=True))


@declaration
@attrs.frozen
class Divisors(Domain):
    """The resolved value times powers of two: divisors of `of`, multiples of `step`, at most `cap`; largest first.

    span: how many octaves to go each way. `of`, `step` and `cap` are numbers or callables of (op) or (op, dev).
    """

    of: int | Callable[..., int]
    step: int | Callable[..., int] = 1
    cap: int | Callable[..., int] | None = None
    span: int | None = None
    when: str | None = None

    def check(self, where: str, cls: Any) -> None:
        super().check(where, cls)
        optional = {} if self.cap is None else dict(cap=self.cap)
        self._check_rules(where, int, "a number", of=self.of, step=self.step, **optional)

    def values(self, op: Any, name: str, dev: Any) -> tuple[Any, ...]:
        of, step, cap = (_given(rule, op, dev) for rule in (self.of, self.step, self.cap))
        for part, n in (("of", of), ("step", step), *([] if self.cap is None else [("cap", cap)])):
            if not isinstance(n, (int, np.integer)) or n < 1:
                raise DeclarationError(f"{type(op).__name__}.{name}: domain's {part} gave {n!r}; legal: a whole number of at least 1.")
        own = getattr(op, name)
        found = {own}
        n, octaves = own * 2, 1
        while of % n == 0 and (cap is None or n <= cap) and (self.span is None or octaves <= self.span):
            found.add(n)
            n, octaves = n * 2, octaves + 1
        n, octaves = own, 1
        while n % 2 == 0 and (n // 2) % step == 0 and (self.span is None or octaves <= self.span):
            n, octaves = n // 2, octaves + 1
            if of % n == 0 and (cap is None or n <= cap):
                found.add(n)
        return tuple(sorted(found, reverse=True))


@declaration
@attrs.frozen
class Choices(Domain):
    """A fixed set, or a callable of (op) or (op, dev) that gives one; the resolved value first if it is not among them."""

    options: tuple[Any, ...] | Callable[..., tuple[Any, ...]]
    when: str | None = None

    def check(self, where: str, cls: Any) -> None:
        super().check(where, cls)
        self._check_rules(where, (tuple, list, range), "a tuple of values, as Choices((1, 2))", options=self.options)
        tunable = cls.fields[where.rpartition(".")[2]]
        for option in () if callable(self.options) else self.options:
            if legal := tunable.misfit(tunable.convert(option)):
                raise DeclarationError(f"{where}: domain's options have {option!r}; legal: {legal}.")

    def values(self, op: Any, name: str, dev: Any) -> tuple[Any, ...]:
        options = tuple(_given(self.options, op, dev))
        own = getattr(op, name)
        return options if own in options else (own, *options)


class Level(enum.Enum):
    """How much of a tile's place is fixed."""

    TILE = "tile"
    COLUMN = "column"
    FREE = "free"


@declaration
@attrs.frozen
class Pins:
    """What a named placement fixes of cores, memory tiles and shims."""

    cores: Level = Level.TILE
    memtiles: Level = Level.TILE
    shims: Level = Level.TILE


@declaration
@attrs.frozen
class Placement(Domain):
    """Named tile placements. The tunable itself is the name."""

    named: Mapping[str, Pins]
    when: str | None = None

    def check(self, where: str, cls: Any) -> None:
        super().check(where, cls)
        if not isinstance(self.named, Mapping) or not all(isinstance(pins, Pins) for pins in self.named.values()):
            raise DeclarationError(f"{where}: domain's named={self.named!r}; legal: a dict of Pins, as Placement({{'row': Pins()}}).")
        default = cls.fields[where.rpartition(".")[2]].default
        if isinstance(default, str) and default not in self.named:
            raise DeclarationError(f"{where}: default {default!r}; legal: a placement that the domain names, of {', '.join(self.named)}.")

    def pins(self, name: str, tunable: str = "placement") -> Pins:
        """What a placement fixes. Unresolvable, which names the tunable, for one that is not declared."""
        if name not in self.named:
            raise Unresolvable(f"{tunable}={name!r} is not declared. Legal: {', '.join(self.named)}.")
        return self.named[name]

    def values(self, op: Any, name: str, dev: Any) -> tuple[Any, ...]:
        own = getattr(op, name)
        self.pins(own, name)
        return (own, *(n for n in self.named if n != own))


def domains(op: Any, dev: Device | str) -> dict[str, tuple[Any, ...]]:
    """Per tunable of a resolved operator that is neither pinned nor derived, the values to try.

    A tunable that some operand's `per=` names and that declares no domain is a `Width`. CallError for an operator that is not
    resolved; UnknownName for no device.
    """
    from iron_core.devices import device  # here: declaring operators needs no devices

    require_operator(op, "domains()")
    dev = device(dev)
    found: dict[str, tuple[Any, ...]] = {}
    for name, domain in searchable(op).items():
        if name in op.pinned:
            continue
        if getattr(op, name) is None:
            raise CallError(f"{type(op).__name__}.{name} is open; ask a resolved operator: op.resolved(dev).")
        found[name] = domain.values(op, name, dev)
    return found


def searchable(op: Any) -> dict[str, Domain]:
    """Per tunable that has other values than one, its domain: which of them is chosen changes no bit of a result."""
    lanes = {f.name for o in op.operands.values() for f in (o.per or ()) if hasattr(f, "name")}
    found = {}
    for name, field in op.fields.items():
        if isinstance(field, AutoField) and not field.derived:
            domain = field.domain or (Width() if name in lanes else None)
            if domain is not None and (domain.when is None or getattr(op, domain.when)):
                found[name] = domain
    return found
