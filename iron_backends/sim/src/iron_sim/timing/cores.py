"""A core that takes time: its recorded program as a Python generator over tokens, with the numbers of its words known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from iron_core.array.design import CoreData
from iron_core.array.expression import Binary, Const, Expr, Var
from iron_core.array.program import (
    Acquire,
    AcquireLock,
    Block,
    Call,
    Element,
    For,
    If,
    Load,
    Local,
    Memory,
    RaiseBarrier,
    Release,
    ReleaseLock,
    SetRounding,
    Store,
    Subview,
    WaitBarrier,
    walk,
)
from iron_sim.errors import SimulationError
from iron_sim.timing.clocked import Barrier, Clocked, Line, Tokens
from iron_sim.timing.costs import statement_cycles
from iron_sim.timing.hardware import Hardware

_SIGNS = {
    "add": "+", "sub": "-", "mul": "*", "div": "//", "rem": "%",
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
}  # fmt: skip


class CoreEnd:
    """A core's end of a fifo: what it takes and gives, and how many objects it holds."""

    __slots__ = ("gives", "held", "repeat", "takes")

    def __init__(self, takes: Tokens, gives: Tokens, repeat: int) -> None:
        self.takes = takes
        self.gives = gives
        self.repeat = repeat
        self.held = 0

    def release(self, count: int, time: float) -> None:
        self.held -= count
        self.gives.give(count * self.repeat, time)


class TimedCore(Clocked):
    """One worker. words: its integer buffers; cycles: of one call of each kernel. calls: how many it made.

    followed: the numbers that it reads of objects, in order, where they are known.
    """

    def __init__(
        self,
        data: CoreData,
        line: Line,
        ends: Mapping[tuple[str, str], CoreEnd],
        words: Mapping[str, list[int]],
        locks: Mapping[str, Tokens | Barrier],
        cycles: Mapping[str, float],
        hw: Hardware,
        traced: bool,
        followed: Sequence[int] = (),
    ) -> None:
        self.data = data
        self._followed = iter(followed)
        self.ends = ends
        self.words = words
        self.locks = locks
        self.cycles = cycles
        self.hw = hw
        self.calls = 0
        super().__init__(data.name, line, traced)

    def run(self) -> Iterator[None]:
        source = _Source(self)
        source.block(self.data.program, 2)
        lines = ["def program():", "  while True:" if self.data.forever else "  for _once in range(1):"]
        lines += source.lines or ["    pass"]
        lines += ["  return" if source.waits else "  yield"]
        exec(compile("\n".join(lines), f"<{self.name}>", "exec"), source.names)
        return source.names["program"]()  # type: ignore[no-any-return]

    def follow(self, what: str) -> int:
        """The next number that it reads of an object."""
        for found in self._followed:
            return found
        raise SimulationError(f"{self.name} follows a number that data gives ({what}); its time is not known without the data.")


class _Source:
    """Python lines of a program."""

    def __init__(self, core: TimedCore) -> None:
        self.core = core
        self.names: dict[str, Any] = {"core": core}
        self.lines: list[str] = []
        self.waits = False
        self._ends: dict[tuple[str, str], str] = {}

    def add(self, depth: int, text: str) -> None:
        self.lines.append("  " * depth + text)

    def constant(self, value: Any) -> str:
        name = f"c{len(self.names)}"
        self.names[name] = value
        return name

    def end(self, fifo: str, port: str) -> str:
        if (fifo, port) not in self._ends:
            self._ends[fifo, port] = self.constant(self.core.ends[fifo, port])
        return self._ends[fifo, port]

    def block(self, block: Block, depth: int) -> None:
        if not block:
            self.add(depth, "pass")
        for s in block:
            us = self.core.hw.us(statement_cycles(s, self.core.hw))
            match s:
                case Acquire():
                    self.acquire(s, depth, us)
                case Release():
                    self.add(depth, f"core.time += {us!r}; {self.end(s.fifo, s.port)}.release({s.count}, core.time)")
                case Call():
                    taken = self.core.hw.us(self.core.cycles[s.kernel])
                    self.add(depth, f"core.spend({s.kernel!r}, {taken!r}); core.calls += 1")
                case For():
                    self.add(depth, f"for {s.var} in range({_py(s.start)}, {_py(s.stop)}, {s.step}):")
                    self.block(s.body, depth + 1)
                    self.add(depth + 1, f"core.time += {us!r}")
                case If():
                    self.add(depth, f"if {_py(s.condition)}:")
                    self.block(s.then, depth + 1)
                    if s.otherwise:
                        self.add(depth, "else:")
                        self.block(s.otherwise, depth + 1)
                case Load():
                    self.add(depth, f"{s.name} = {self.word(s.memory, s.index)}")
                case Store():
                    if isinstance(s.memory, Local):
                        self.add(depth, f"{self.word(s.memory, s.index)} = {_py(s.value)}")
                case WaitBarrier():
                    lock = self.constant(self.core.locks[s.barrier])
                    self.waits = True
                    self.add(depth, f"while {lock}.count != {s.value}:")
                    self.add(depth + 1, f"{lock}.wait(core); yield")
                    self.add(depth, f"if {lock}.time > core.time: core.time = {lock}.time")
                case RaiseBarrier():
                    self.add(depth, f"{self.constant(self.core.locks[s.barrier])}.count += {s.value}")
                case AcquireLock():
                    self.take(self.constant(self.core.locks[s.lock]), str(s.value), depth, us)
                case ReleaseLock():
                    self.add(depth, f"core.time += {us!r}; {self.constant(self.core.locks[s.lock])}.give({s.value}, core.time)")
                case SetRounding():
                    self.add(depth, "pass")

    def acquire(self, s: Acquire, depth: int, us: float) -> None:
        end = self.end(s.fifo, s.port)
        self.add(depth, f"if {end}.held < {s.count}:")
        self.add(depth + 1, f"need = ({s.count} - {end}.held) * {end}.repeat; {end}.held = {s.count}")
        self.take(f"{end}.takes", "need", depth + 1, us)

    def take(self, tokens: str, need: str, depth: int, us: float) -> None:
        self.waits = True
        self.add(depth, f"while len({tokens}.times) < {need}:")
        self.add(depth + 1, f"{tokens}.wait(core); yield")
        self.add(depth, f"then = {tokens}.take({need})")
        self.add(depth, "if then > core.time: core.time = then")
        self.add(depth, f"core.time += {us!r}")

    def word(self, memory: Memory, index: Expr) -> str:
        if isinstance(memory, Local) and memory.buffer in self.core.words:
            return f"{self.constant(self.core.words[memory.buffer])}[{_py(index)}]"
        return f"core.follow({_memory(memory)!r})"


def _memory(memory: Memory) -> str:
    if isinstance(memory, Subview):
        return _memory(memory.base)
    return memory.acquired if isinstance(memory, Element) else memory.buffer


def _py(e: Expr) -> str:
    if isinstance(e, Const):
        return repr(e.value)
    if isinstance(e, Var):
        return e.name
    assert isinstance(e, Binary)
    if e.op in ("min", "max"):
        return f"{e.op}({_py(e.left)}, {_py(e.right)})"
    return f"({_py(e.left)} {_SIGNS[e.op]} {_py(e.right)})"


def follows_data(program: Block) -> bool:
    """Does a program read numbers of objects, on which it may branch or loop?"""
    return any(isinstance(s, Load) and not isinstance(s.memory, Local) for s in walk(program))
