"""Kernels: what a core calls on its tiles. mlir-aie hosts most; `Kernel.inline` carries C++ of its own."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import attrs
import numpy as np

from iron_core.array.expression import Const, Expr, expr
from iron_core.array.program import Call
from iron_core.array.recording import MemoryHandle, recorder
from iron_core.array.work import Loop
from iron_core.declare.authored import authored
from iron_core.declare.field import Param
from iron_core.declare.formats import as_dtype
from iron_core.declare.objects import ObjectType
from iron_core.declare.operand import In, InOut, Out
from iron_core.declare.tolerance import Tolerance
from iron_core.errors import DeclarationError

#: Bytes of stack of a core, where no kernel needs more.
STACK = 1024
#: Bytes of program memory of a kernel, where it says nothing else.
PROGRAM = 1100
#: Who says how a kernel rounds: the core it runs on, or the kernel itself.
ROUNDINGS = ("core", "conv_even")

#: Calls of a kernel that are noted: every so many, as far as there are so many.
_EVERY, _MANY = 37, 8

_ROLES: Mapping[Any, str] = {In: "in", Out: "out", InOut: "inout", Param: "param"}


def _roles(given: Any) -> tuple[str, ...]:
    named = tuple(_ROLES.get(role, role) if not isinstance(role, str) else role for role in given)
    for role in named:
        if role not in _ROLES.values():
            raise DeclarationError(f"KernelContract(roles=...): {role!r}; legal: In, Out, InOut, Param.")
    return named


@attrs.frozen(eq=False)
class KernelContract:
    """What a kernel promises.

    roles: per argument `In`, `Out`, `InOut` (read and written) or `Param` (a scalar).
    reference(*arrays, *scalars): numpy on one tile. It is given the In and InOut arrays and the scalars, in argument order,
    and returns what the Out and InOut arguments become (one array, or a tuple), unrounded.
    bindings: (position, value) of scalars that are always the same.
    elementwise: element i of an output depends on element i of the inputs alone.
    ops: operations per call. cycles: per call, with where that figure comes from. loops: what a call does, where operations alone do
    not tell its time. program: bytes of program memory. stack: bytes a call needs.
    rounding: "core" if the kernel rounds as the core is set, "conv_even" if it sets that itself. unsupported: device families.
    poison(*marks): given the marks (bool, in their shapes) of what nobody wrote of the In and InOut arrays, those of the Out and InOut
    ones, as `reference` gives these. Without it all of an integer output depends on every input; floats tell by themselves, as NaN.
    """

    roles: tuple[str, ...] = attrs.field(converter=_roles)
    reference: Callable[..., Any]
    bindings: tuple[tuple[int, int | float], ...] = ()
    tolerance: Tolerance = Tolerance()  # noqa: RUF009 (frozen)
    elementwise: bool = False
    ops: int = 0
    cycles: float | None = None
    cycles_source: str = ""
    loops: tuple[Loop, ...] = ()
    program: int = PROGRAM
    stack: int = STACK
    rounding: str = "core"
    unsupported: tuple[str, ...] = ()
    poison: Callable[..., Any] | None = None

    def __attrs_post_init__(self) -> None:
        if not callable(self.reference):
            raise DeclarationError(f"KernelContract(reference={self.reference!r}); legal: a function of numpy tiles.")
        if self.poison is not None and not callable(self.poison):
            raise DeclarationError(f"KernelContract(poison={self.poison!r}); legal: a function of marks.")
        if self.rounding not in ROUNDINGS:
            raise DeclarationError(f"KernelContract(rounding={self.rounding!r}); legal: {', '.join(ROUNDINGS)}.")
        if type(self.stack) is not int or self.stack < 1:
            raise DeclarationError(f"KernelContract(stack={self.stack!r}); legal: bytes, at least 1.")


@attrs.frozen
class KernelData:
    """A kernel as part of a design. `arguments` are the types in order: an ObjectType or a scalar dtype's name.

    factory: the dotted name of what makes it in mlir-aie, and its keywords; or source: C++ that defines `symbol`, compiled
    with `defines`. roles, stack, rounding, unsupported: as its contract has them.
    """

    symbol: str
    arguments: tuple[ObjectType | str, ...]
    factory: str = ""
    keywords: tuple[tuple[str, Any], ...] = ()
    source: str = ""
    defines: tuple[tuple[str, str], ...] = ()
    roles: tuple[str, ...] = attrs.field(kw_only=True)
    stack: int = attrs.field(default=STACK, kw_only=True)
    rounding: str = attrs.field(default="core", kw_only=True)
    unsupported: tuple[str, ...] = attrs.field(default=(), kw_only=True)


class NotedCalls:
    """What kernels' tile references were called with, by symbol: arguments in order, tiles as they were; of many calls some."""

    def __init__(self) -> None:
        self.calls: dict[str, list[tuple[Any, ...]]] = {}
        self._counts: dict[str, int] = {}

    def add(self, symbol: str, args: tuple[Any, ...]) -> None:
        count = self._counts[symbol] = self._counts.get(symbol, -1) + 1
        if count % _EVERY == 0 and count < _EVERY * _MANY:
            kept = tuple(np.copy(a) if isinstance(a, np.ndarray) else getattr(a, "value", a) for a in args)
            self.calls.setdefault(symbol, []).append(kept)


_noted: ContextVar[NotedCalls | None] = ContextVar("iron_noted_calls", default=None)


@contextmanager
def noting() -> Iterator[NotedCalls]:
    """Inside the block, in this thread, what tile references are called with is noted: by a simulated array, by `composed()`."""
    token = _noted.set(NotedCalls())
    try:
        yield _noted.get()  # type: ignore[misc]
    finally:
        _noted.reset(token)


class Kernel:
    """A function of a core. Called in a core function it records the call. `data` is what a design keeps of it."""

    def __init__(self, symbol: str, arguments: tuple[ObjectType | str, ...], contract: KernelContract, **made: Any) -> None:
        self.contract = contract
        promised = {name: getattr(contract, name) for name in ("roles", "stack", "rounding", "unsupported")}
        self.data = data = KernelData(symbol, arguments, **made, **promised)
        if len(data.roles) != len(data.arguments):
            raise DeclarationError(
                f"kernel {data.symbol}: {len(data.arguments)} arguments and {len(data.roles)} roles in its contract."
            )
        for role, argument in zip(data.roles, data.arguments, strict=True):
            if (role == "param") != isinstance(argument, str):
                raise DeclarationError(f"kernel {data.symbol}: {role} argument of type {argument}; a Param is a scalar dtype.")
        scalars = [position for position, role in enumerate(data.roles) if role == "param"]
        for position, _ in contract.bindings:
            if position not in scalars:
                legal = ", ".join(map(str, scalars)) or "none"
                raise DeclarationError(f"kernel {data.symbol}: its contract binds argument {position}; legal: its Params, {legal}.")

    @classmethod
    def factory(cls, dotted: str, arguments: Any, contract: KernelContract, *, symbol: str = "", **keywords: Any) -> Kernel:
        """What `aie.iron.kernels.<dotted>(**keywords)` makes; symbol: the function's own name, if not the factory's."""
        types = tuple(_argument(a) for a in arguments)
        plain = tuple(sorted((k, _plain(v)) for k, v in keywords.items()))
        base = symbol or dotted.rpartition(".")[2]
        return cls(f"{base}_{_digest(dotted, symbol, types, plain)}", types, contract, factory=dotted, keywords=plain)

    @classmethod
    def inline(
        cls, name: str, source: str, arguments: Any, contract: KernelContract, defines: Mapping[str, Any] | None = None
    ) -> Kernel:
        """Portable C++ that defines `extern "C" void KERNEL(...)`; KERNEL and `defines` are macros of its compilation."""
        types = tuple(_argument(a) for a in arguments)
        macros = tuple(sorted((k, str(v)) for k, v in (defines or {}).items()))
        return cls(f"{name}_{_digest(source, types, macros)}", types, contract, source=source, defines=macros)

    def reference(self, *args: Any) -> Any:
        """The tile reference on numpy arrays: In and InOut tiles and the scalars that are not bound, in argument order."""
        bound = dict(self.contract.bindings)
        given = iter(args)
        positions = (i for i, role in enumerate(self.data.roles) if role != "out")
        return self.made(*(bound[i] if i in bound else next(given) for i in positions))

    def made(self, *args: Any) -> Any:
        """The tile reference on all that it is given, bound scalars too, as a core calls it."""
        noted = _noted.get()
        if noted is not None:
            noted.add(self.data.symbol, args)
        with authored(self, f"reference() of {self.data.symbol}"):
            return self.contract.reference(*args)

    def __call__(self, *args: Any) -> None:
        """Record a call: memory for tiles, numbers or expressions for scalars. Bound scalars are left out."""
        data = self.data
        bound = dict(self.contract.bindings)
        given = list(args)
        if len(given) != len(data.arguments) - len(bound):
            raise DeclarationError(
                f"kernel {data.symbol} takes {len(data.arguments) - len(bound)} arguments; {len(given)} were given."
            )
        full: list[Any] = []
        for position, argument in enumerate(data.arguments):
            value = bound[position] if position in bound else given.pop(0)
            if isinstance(argument, str):
                full.append(_scalar(value, argument, data.symbol))
                continue
            if not isinstance(value, MemoryHandle):
                raise DeclarationError(
                    f"kernel {data.symbol}, argument {position} is {argument}; {type(value).__name__} was given. "
                    "Legal: an object or a buffer."
                )
            have = value.type
            if have.dtype_name != argument.dtype_name or have.elements != argument.elements:
                raise DeclarationError(f"kernel {data.symbol}, argument {position} is {argument}; {have} was given.")
            full.append(value.memory)
        recorder().kernel(self)
        recorder().add(Call(data.symbol, tuple(full)))


def _scalar(value: Any, dtype: str, symbol: str) -> Expr:
    """A Param: an expression of integers, or for a float dtype a number."""
    if as_dtype(dtype).kind in "iu":
        return expr(value)
    if isinstance(value, Expr) and not isinstance(value, Const):
        raise DeclarationError(f"kernel {symbol}: {value} for a {dtype}; cores compute integers. Legal: a number.")
    return value if isinstance(value, Const) else Const(float(value))


def _argument(given: Any) -> ObjectType | str:
    if isinstance(given, ObjectType):
        return given
    return as_dtype(given).name


def _plain(value: Any) -> Any:
    if isinstance(value, (bool, int, float, str)) or value is None:
        return value
    if isinstance(value, tuple):
        return tuple(_plain(v) for v in value)
    return as_dtype(value).name


def _digest(*parts: Any) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:8]
