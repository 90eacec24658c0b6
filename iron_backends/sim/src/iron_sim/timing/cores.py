"""A core that takes time: its recorded program as a Python generator over tokens, with the numbers of its words known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from iron_core.array.design import CoreData
from iron_core.array.expression import Binary, Expr
from iron_core.array.program import (
    Acquire,
    AcquireLock,
    Block,
    Call,
    Element,
    For,
    Load,
    Local,
    Memory,
    RaiseBarrier,
    Release,
    ReleaseLock,
    Statement,
    Store,
    Subview,
    WaitBarrier,
    walk,
)
from iron_sim.errors import SimulationError
from iron_sim.lines import Lines
from iron_sim.timing.clocked import Barrier, Clocked, Line, Tokens
from iron_sim.timing.costs import statement_cycles
from iron_sim.timing.hardware import Hardware


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
        lines += source.lines
        lines += ["  return" if source.waits else "  yield"]
        exec(compile("\n".join(lines), f"<{self.name}>", "exec"), source.names)
        return source.names["program"]()  # type: ignore[no-any-return]

    def follow(self, what: str) -> int:
        """The next number that it reads of an object."""
        for found in self._followed:
            return found
        raise SimulationError(f"{self.name} follows a number that data gives ({what}); its time is not known without the data.")


class _Source(Lines):
    """Python lines of a program."""

    def _us(self, s: Statement) -> float:
        return self.core.hw.us(statement_cycles(s, self.core.hw))  # type: ignore[no-any-return]

    def turned(self, loop: For, depth: int) -> None:
        self.add(depth, f"core.time += {self._us(loop)!r}")

    def statement(self, s: Statement, depth: int) -> None:
        us, locks = self._us(s), self.core.locks
        match s:
            case Acquire():
                end = self.end(s.fifo, s.port)
                self.waits = True
                self.add(depth, f"if {end}.held < {s.count}:")
                self.add(depth + 1, f"need = ({s.count} - {end}.held) * {end}.repeat; {end}.held = {s.count}")
                self.take(f"{end}.takes", "need", depth + 1, us)
            case Release():
                self.add(depth, f"core.time += {us!r}; {self.end(s.fifo, s.port)}.release({s.count}, core.time)")
            case Call():
                taken = self.core.hw.us(self.core.cycles[s.kernel])
                self.add(depth, f"core.spend({s.kernel!r}, {taken!r}); core.calls += 1")
            case Load():
                self.add(depth, f"{s.name} = {self.word(s.memory, s.index)}")
            case Store():
                if isinstance(s.memory, Local):
                    self.add(depth, f"{self.word(s.memory, s.index)} = {self.number(s.value)}")
            case WaitBarrier():
                lock = self.constant(locks[s.barrier])
                self.until(depth, f"{lock}.count == {s.value}", lock, "")
                self.add(depth, f"if {lock}.time > core.time: core.time = {lock}.time")
            case RaiseBarrier():
                self.add(depth, f"{self.constant(locks[s.barrier])}.count += {s.value}")
            case AcquireLock():
                self.take(self.constant(locks[s.lock]), str(s.value), depth, us)
            case ReleaseLock():
                self.add(depth, f"core.time += {us!r}; {self.constant(locks[s.lock])}.give({s.value}, core.time)")

    def blocked(self, on: str, what: str) -> str:
        return f"{on}.wait(core)"

    def divided(self, e: Binary) -> str:
        return f"({self.number(e.left)} {'//' if e.op == 'div' else '%'} {self.number(e.right)})"

    def take(self, tokens: str, need: str, depth: int, us: float) -> None:
        self.until(depth, f"len({tokens}.times) >= {need}", tokens, "")
        self.add(depth, f"then = {tokens}.take({need})")
        self.add(depth, "if then > core.time: core.time = then")
        self.add(depth, f"core.time += {us!r}")

    def word(self, memory: Memory, index: Expr) -> str:
        if isinstance(memory, Local) and memory.buffer in self.core.words:
            return f"{self.constant(self.core.words[memory.buffer])}[{self.number(index)}]"
        return f"core.follow({_memory(memory)!r})"


def _memory(memory: Memory) -> str:
    if isinstance(memory, Subview):
        return _memory(memory.base)
    return memory.acquired if isinstance(memory, Element) else memory.buffer


def follows_data(program: Block) -> bool:
    """Does a program read numbers of objects, on which it may branch or loop?"""
    return any(isinstance(s, Load) and not isinstance(s.memory, Local) for s in walk(program))
