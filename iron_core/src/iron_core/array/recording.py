"""Running a core function once, on symbolic handles: the statements it makes, and what it computes with."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterable, Iterator
from typing import Any

from iron_core.array.expression import Const, Expr, Var, expr
from iron_core.array.program import Block, For, If, Load, Memory, SetRounding, Statement, Store, Subview
from iron_core.declare.objects import ObjectType
from iron_core.errors import DeclarationError


class Recorder:
    """The statements of one core function while it runs. worker: its name; parts: the fifo ends and buffers it was given."""

    def __init__(self, worker: str, parts: Iterable[Any] = ()) -> None:
        self.worker = worker
        #: Every `Kernel` it calls, by symbol.
        self.kernels: dict[str, Any] = {}
        self._parts = list(parts)
        self._blocks: list[list[Statement]] = [[]]
        self._names = 0
        self.left = False

    def add(self, statement: Statement) -> None:
        self._blocks[-1].append(statement)

    def name(self, kind: str) -> str:
        """A name no other variable or acquisition of this program has."""
        self._names += 1
        return f"{kind}{self._names - 1}"

    def owns(self, part: Any) -> None:
        """DeclarationError unless the fifo end or buffer was among the worker's arguments."""
        if not any(part is own for own in self._parts):
            raise DeclarationError(f"worker {self.worker} uses {part!r}, which is not among its args.")

    def kernel(self, kernel: Any) -> None:
        """Note that the program calls it."""
        known = self.kernels.setdefault(kernel.data.symbol, kernel)
        if known.data != kernel.data:
            raise DeclarationError(f"two kernels named {kernel.data.symbol} in one core.")

    @contextlib.contextmanager
    def block(self) -> Iterator[list[Statement]]:
        """Collect statements apart."""
        inner: list[Statement] = []
        self._blocks.append(inner)
        try:
            yield inner
        finally:
            self._blocks.pop()

    @property
    def last(self) -> list[Statement]:
        return self._blocks[-1]

    def finish(self) -> Block:
        """The whole program."""
        if self.left or len(self._blocks) > 1:
            raise DeclarationError(
                f"worker {self.worker} leaves a range_ loop by `break` or `return`, which only happens in Python. "
                "Put what the core does conditionally in `with if_(...):`."
            )
        return tuple(self._blocks[0])


_recorder: contextvars.ContextVar[Recorder | None] = contextvars.ContextVar("iron_core_recorder", default=None)


def recorder() -> Recorder:
    """The core function being recorded; DeclarationError outside of one."""
    active = _recorder.get()
    if active is None:
        raise DeclarationError("acquire, release, kernel calls and loops belong in a Worker's core function.")
    return active


@contextlib.contextmanager
def recording(active: Recorder) -> Iterator[None]:
    """Record what a core function does inside the block."""
    token = _recorder.set(active)
    try:
        yield
    finally:
        _recorder.reset(token)


def range_(start: Any, stop: Any = None, step: int = 1) -> Iterator[Expr]:
    """`for i in range_(n):` a loop on the core. Bounds are numbers or expressions, the step a number; the body runs once."""
    if stop is None:
        start, stop = 0, start
    if not isinstance(step, int) or step < 1:
        raise DeclarationError(f"range_ in steps of {step!r}; legal: a whole number of at least 1.")
    first, last = expr(start), expr(stop)
    if isinstance(first, Const) and isinstance(last, Const) and last.value < first.value:
        given = f"{start}, {stop}" if start else stop
        raise DeclarationError(f"range_({given}) runs {last.value - first.value} times; legal: 0 times or more.")
    active = recorder()
    var = active.name("i")
    with active.block() as body:
        try:
            yield Var(var)
        except GeneratorExit:
            active.left = True
            raise
    active.add(For(var, first, last, step, tuple(body)))


@contextlib.contextmanager
def if_(condition: Expr) -> Iterator[None]:
    """`with if_(n > 0):` statements the core runs only where the condition holds."""
    active = recorder()
    with active.block() as body:
        yield
    active.add(If(expr(condition), tuple(body)))


@contextlib.contextmanager
def else_() -> Iterator[None]:
    """Right after an `if_` block: what runs otherwise."""
    active = recorder()
    before = active.last[-1] if active.last else None
    if not isinstance(before, If) or before.otherwise:
        raise DeclarationError("else_() belongs right after an if_ block.")
    with active.block() as body:
        yield
    active.last[-1] = If(before.condition, before.then, tuple(body))


def set_rounding(mode: str) -> None:
    """How this core rounds from here on: "conv_even" or "floor" (what a fresh core does)."""
    if mode not in ("conv_even", "floor"):
        raise DeclarationError(f"set_rounding({mode!r}); legal: 'conv_even', 'floor'.")
    recorder().add(SetRounding(mode))


class MemoryHandle:
    """An object held, a buffer, or a part of one, in a core function. Numbers are read and written by flat index."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory

    @property
    def type(self) -> ObjectType:
        return self.memory.type

    def _at(self, index: Any) -> Expr:
        if self.type.dtype.kind not in "iu":
            raise DeclarationError(f"a core function reads and writes integers; this memory is {self.type}. Call a kernel.")
        return expr(index)

    def __getitem__(self, index: Any) -> Expr:
        where = self._at(index)
        name = recorder().name("v")
        recorder().add(Load(name, self.memory, where))
        return Var(name)

    def __setitem__(self, index: Any, value: Any) -> None:
        recorder().add(Store(self.memory, self._at(index), expr(value)))

    def sub(self, offset: Any, shape: Any) -> MemoryHandle:
        """`shape` elements from element `offset` on."""
        if isinstance(self.memory, Subview):
            inner = self.memory
            return MemoryHandle(Subview(inner.base, inner.offset + offset, ObjectType.of(shape, inner.type.dtype_name)))
        return MemoryHandle(Subview(self.memory, expr(offset), ObjectType.of(shape, self.type.dtype_name)))
