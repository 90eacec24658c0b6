"""What a core function becomes when it is recorded: a structured program over fifos, buffers and kernels. Data only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Union

import attrs

from iron_core.array.expression import Expr
from iron_core.declare.objects import ObjectType


@attrs.frozen
class Element:
    """Object `index` of what acquisition `acquired` holds."""

    acquired: str
    index: int
    type: ObjectType


@attrs.frozen
class Local:
    """A whole buffer of the tile."""

    buffer: str
    type: ObjectType


@attrs.frozen
class Subview:
    """`type.elements` consecutive elements of an object or buffer, from element `offset` on."""

    base: Element | Local
    offset: Expr
    type: ObjectType


Memory = Union[Element, Local, Subview]


@attrs.frozen
class Acquire:
    """Have `count` objects of `fifo` held at this end (`port`: "produce" or "consume"); the first is the oldest held."""

    name: str
    fifo: str
    port: str
    count: int


@attrs.frozen
class Release:
    """Give the `count` oldest held objects of this end on."""

    fifo: str
    port: str
    count: int


@attrs.frozen
class Call:
    """A kernel on memory and scalars, in the order of its arguments."""

    kernel: str
    args: tuple[Memory | Expr, ...]


@attrs.frozen
class For:
    """`var` from `start` to below `stop` in steps of `step`."""

    var: str
    start: Expr
    stop: Expr
    step: int
    body: tuple[Statement, ...]


@attrs.frozen
class If:
    """`then` where the condition is not 0, else `otherwise`."""

    condition: Expr
    then: tuple[Statement, ...]
    otherwise: tuple[Statement, ...] = ()


@attrs.frozen
class Load:
    """Variable `name` is element `index` of an integer memory."""

    name: str
    memory: Memory
    index: Expr


@attrs.frozen
class Store:
    """Element `index` of an integer memory becomes `value`."""

    memory: Memory
    index: Expr
    value: Expr


@attrs.frozen
class WaitBarrier:
    """Go on when the barrier is exactly `value`; it keeps the value."""

    barrier: str
    value: int


@attrs.frozen
class RaiseBarrier:
    """Add `value` to the barrier: after a wait, what keeps the core from passing it again before the next `set`."""

    barrier: str
    value: int


@attrs.frozen
class AcquireLock:
    """Wait until the lock is at least `value`, then take `value` from it."""

    lock: str
    value: int


@attrs.frozen
class ReleaseLock:
    """Add `value` to the lock."""

    lock: str
    value: int


@attrs.frozen
class SetRounding:
    """How the core rounds float32 to fewer bits from here on: "conv_even" (ties to even) or "floor" (a fresh core's)."""

    mode: str


Statement = Union[
    Acquire, Release, Call, For, If, Load, Store, WaitBarrier, RaiseBarrier, AcquireLock, ReleaseLock, SetRounding
]
Block = tuple[Statement, ...]


def walk(block: Block) -> Iterator[Statement]:
    """Every statement, outer before inner, in program order."""
    for statement in block:
        yield statement
        if isinstance(statement, For):
            yield from walk(statement.body)
        elif isinstance(statement, If):
            yield from walk(statement.then)
            yield from walk(statement.otherwise)
