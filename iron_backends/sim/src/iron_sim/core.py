"""A core: its recorded program turned into a Python generator that stops only where the core would wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from iron_core.array.design import CoreData
from iron_core.array.expression import Binary, Expr
from iron_core.array.kernel import Kernel
from iron_core.array.program import (
    Acquire,
    AcquireLock,
    Call,
    Element,
    For,
    Load,
    Local,
    RaiseBarrier,
    Release,
    ReleaseLock,
    SetRounding,
    Statement,
    Store,
    Subview,
    WaitBarrier,
)
from iron_core.declare.objects import ObjectType
from iron_sim.actor import Actor, Semaphore
from iron_sim.errors import PoisonError, SimulationError
from iron_sim.lines import Lines
from iron_sim.memory import Mem, store


class CoreEnd:
    """A core's end of a fifo: buffers in turn, what it takes and what it gives."""

    __slots__ = ("base", "buffers", "depth", "gives", "held", "name", "repeat", "takes")

    def __init__(self, name: str, buffers: list[Mem], takes: Semaphore, gives: Semaphore, repeat: int) -> None:
        self.name = name
        self.buffers = buffers
        self.depth = len(buffers)
        self.takes = takes
        self.gives = gives
        self.repeat = repeat
        self.base = 0
        self.held = 0

    def release(self, count: int, core: Core) -> None:
        if count > self.held:
            raise SimulationError(f"{core.name} releases {count} of {self.name} and holds {self.held}.")
        self.held -= count
        self.base = (self.base + count) % self.depth
        self.gives.give(count * self.repeat)


class Core(Actor):
    """One worker."""

    def __init__(
        self,
        data: CoreData,
        ends: dict[tuple[str, str], CoreEnd],
        buffers: dict[str, Mem],
        locks: dict[str, Semaphore],
        kernels: Mapping[str, Kernel],
    ) -> None:
        super().__init__(data.name)
        self.data = data
        self.ends = ends
        self.buffers = buffers
        self.locks = locks
        self.kernels = kernels
        self.mode = "floor"  # a fresh core rounds toward minus infinity
        self.calls = 0
        self.at_start = True
        #: What it has read of objects, in order, where that is kept: numbers that data gives and the program follows.
        self.followed: list[int] | None = None

    def run(self) -> Iterator[None]:
        return _compiled(self)

    @property
    def idle(self) -> bool:
        """Is it where its program starts, with nothing held?"""
        return self.at_start or not any(end.held for end in self.ends.values())


def _compiled(core: Core) -> Iterator[None]:
    """The generator of a core's program."""
    source = _Source(core, part=part, load=_load, follow=_follow, put=_put, divided=_divided)
    source.block(core.data.program, 2)
    lines = ["def program():"]
    lines += ["  while True:"] if core.data.forever else ["  for _once in range(1):"]
    lines += ["    core.at_start = True"]
    lines += source.lines
    if not core.data.forever:
        lines.append("  core.at_start = True")
    if core.data.forever and not source.waits:
        raise SimulationError(f"{core.name} runs forever and waits for nothing.")
    lines += ["  yield" if not source.waits else "  return"]
    exec(compile("\n".join(lines), f"<{core.name}>", "exec"), source.names)
    return source.names["program"]()


class _Source(Lines):
    """Python lines for a program."""

    def __init__(self, core: Core, **names: Any) -> None:
        super().__init__(core, **names)
        self._calls: dict[str, str] = {}

    def statement(self, s: Statement, depth: int) -> None:
        locks = self.core.locks
        match s:
            case Acquire():
                self.acquire(s, depth)
            case Release():
                self.add(depth, f"{self.end(s.fifo, s.port)}.release({s.count}, core)")
            case Call():
                args = ", ".join(self.argument(a) for a in s.args)
                self.add(depth, f"{self.kernel(s.kernel)}(core, {args})")
            case Load():
                how = "load" if isinstance(s.memory, Local) else "follow"
                self.add(depth, f"{s.name} = {how}(core, {self.memory(s.memory)}, {self.number(s.index)})")
            case Store():
                self.add(depth, f"put(core, {self.memory(s.memory)}, {self.number(s.index)}, {self.number(s.value)})")
            case WaitBarrier():
                lock = self.constant(locks[s.barrier])
                self.until(depth, f"{lock}.count == {s.value}", lock, f"barrier {s.barrier} at {s.value}")
                self.add(depth, "core.at_start = False")
            case RaiseBarrier():
                self.add(depth, f"{self.constant(locks[s.barrier])}.give({s.value})")
            case AcquireLock():
                lock = self.constant(locks[s.lock])
                self.until(depth, f"{lock}.count >= {s.value}", lock, f"lock {s.lock} at {s.value} or more")
                self.add(depth, f"{lock}.count -= {s.value}")
            case ReleaseLock():
                self.add(depth, f"{self.constant(locks[s.lock])}.give({s.value})")
            case SetRounding():
                self.add(depth, f"core.mode = {s.mode!r}")

    def turned(self, loop: For, depth: int) -> None:
        """Nothing: it takes no time here."""

    def acquire(self, s: Acquire, depth: int) -> None:
        end = self.end(s.fifo, s.port)
        what = f"{s.count} {'empty' if s.port == 'produce' else 'filled'} object{'s' if s.count > 1 else ''} of {s.fifo}"
        have = self.core.ends[s.fifo, s.port].depth
        if s.count > have:
            raise SimulationError(f"{self.core.name} acquires {s.count} of {s.fifo}, whose end there has {have} buffers.")
        self.waits = True
        self.add(depth, f"if {end}.held < {s.count}:")
        self.add(depth + 1, f"need = ({s.count} - {end}.held) * {end}.repeat")
        self.until(depth + 1, f"{end}.takes.count >= need", f"{end}.takes", what)
        self.add(depth + 1, f"{end}.takes.count -= need; {end}.held = {s.count}; core.at_start = False")
        for i in range(s.count):
            self.add(depth, f"{s.name}_{i} = {end}.buffers[({end}.base + {i}) % {end}.depth]")

    def blocked(self, on: str, what: str) -> str:
        return f"core.block({on}, {what!r})"

    def divided(self, e: Binary) -> str:
        return f"divided(core, {self.number(e.left)}, {self.number(e.right)})[{int(e.op == 'rem')}]"

    def kernel(self, symbol: str) -> str:
        if symbol not in self._calls:
            self._calls[symbol] = self.constant(caller(self.core.kernels[symbol]))
        return self._calls[symbol]

    def memory(self, m: Any) -> str:
        if isinstance(m, Element):
            return f"{m.acquired}_{m.index}"
        if isinstance(m, Local):
            return self.constant(self.core.buffers[m.buffer])
        assert isinstance(m, Subview)
        return f"part(core, {self.memory(m.base)}, {self.number(m.offset)}, {m.type.elements})"

    def argument(self, a: Any) -> str:
        return self.number(a) if isinstance(a, Expr) else self.memory(a)


def _divided(core: Core, number: int, by: int) -> tuple[int, int]:
    """Quotient and remainder. Of negative numbers a core rounds them toward zero, where Python rounds down."""
    if number < 0 or by <= 0:
        raise SimulationError(f"{core.name} divides {number} by {by}; legal: numbers that are not negative, by positive ones.")
    return divmod(number, by)


def part(core: Core, mem: Mem, start: int, count: int) -> Mem:
    """A part of memory; an error where it leaves it."""
    if start < 0 or start + count > mem.data.size:
        raise SimulationError(f"{core.name} uses numbers {start} to {start + count - 1} of a memory of {mem.data.size}.")
    return mem.part(start, count)


def _load(core: Core, mem: Mem, index: int) -> int:
    if not 0 <= index < mem.data.size:
        raise SimulationError(f"{core.name} reads number {index} of a memory of {mem.data.size}.")
    if mem.mask[index]:
        raise PoisonError(f"{core.name} reads word {index}, which nobody wrote.")
    return int(mem.data[index])


def _follow(core: Core, mem: Mem, index: int) -> int:
    """`_load` of an object's number."""
    found = _load(core, mem, index)
    if core.followed is not None:
        core.followed.append(found)
    return found


def _put(core: Core, mem: Mem, index: int, value: int) -> None:
    if not 0 <= index < mem.data.size:
        raise SimulationError(f"{core.name} writes number {index} of a memory of {mem.data.size}.")
    mem.data[index] = value
    mem.mask[index] = False


def caller(kernel: Kernel) -> Callable[..., None]:
    """A function (core, *arguments) that runs a kernel's tile reference on memory."""
    data, reference = kernel.data, kernel.made
    roles = data.roles
    shapes = tuple(a.shape if isinstance(a, ObjectType) else None for a in data.arguments)
    reads = tuple(i for i, role in enumerate(roles) if role in ("in", "inout"))
    given = tuple((i, shapes[i]) for i, role in enumerate(roles) if role != "out")
    writes = tuple(i for i, role in enumerate(roles) if role in ("out", "inout"))
    sets, spread = data.rounding == "conv_even", kernel.contract.poison
    name = data.symbol

    def call(core: Core, *args: Any) -> None:
        poisoned = any(args[i].mask.any() for i in reads)
        # Before the arguments that it writes into are changed.
        marks = _tuple(spread(*(args[i].mask.reshape(shapes[i]) for i in reads))) if poisoned and spread else ()
        values = [args[i] if shape is None else args[i].data.reshape(shape) for i, shape in given]
        try:
            with np.errstate(all="ignore"):  # cores raise no flags
                result = reference(*values)
        except (ValueError, IndexError, TypeError) as error:
            scalars = [value for value, (_, shape) in zip(values, given, strict=True) if shape is None]
            raise SimulationError(
                f"{core.name}: the tile reference of kernel {name} failed with scalars {scalars}: {error}."
            ) from error
        results = _tuple(result)
        if len(results) != len(writes):
            raise SimulationError(f"kernel {name}: its reference gave {len(results)} results for {len(writes)} outputs.")
        mode = "conv_even" if sets else core.mode
        for at, (i, value) in enumerate(zip(writes, results, strict=True)):
            into = args[i]
            try:
                store(into.data, value, mode)
            except ValueError:
                gave = f"{list(np.shape(value))} for argument {i}, {data.arguments[i]}"
                raise SimulationError(f"kernel {name}: its reference gave {gave}.") from None
            if marks:
                into.mask[:] = np.ravel(marks[at])
            elif poisoned:
                # A poisoned float is NaN, and what a NaN reaches is NaN: the reference itself says how far poison goes.
                into.mask[:] = np.isnan(into.data) if into.data.dtype.kind not in "iub" else True
            else:
                into.mask[:] = False
        core.calls += 1

    return call


def _tuple(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)
