"""Python lines of a core's recorded program: what a run with data and a run on the clock have in common."""

from __future__ import annotations

import abc
from typing import Any

from iron_core.array.expression import Binary, Const, Expr, Var
from iron_core.array.program import Block, For, If, Statement
from iron_sim.errors import SimulationError

_SIGNS = {
    "add": "+", "sub": "-", "mul": "*",
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
}  # fmt: skip


class Lines(abc.ABC):
    """The body of a generator that yields where its core waits. core: has a name and `ends`; names: what the lines may call."""

    def __init__(self, core: Any, **names: Any) -> None:
        self.core = core
        self.names: dict[str, Any] = {"core": core, **names}
        self.lines: list[str] = []
        self.waits = False
        self._ends: dict[tuple[str, str], str] = {}

    @abc.abstractmethod
    def statement(self, s: Statement, depth: int) -> None:
        """Add what neither loops nor chooses."""

    @abc.abstractmethod
    def blocked(self, on: str, what: str) -> str:
        """The expression that notes what a core waits for, named `what` in reports."""

    @abc.abstractmethod
    def divided(self, e: Binary) -> str:
        """A quotient or a remainder."""

    @abc.abstractmethod
    def turned(self, loop: For, depth: int) -> None:
        """Add what ends a turn of a loop."""

    def add(self, depth: int, text: str) -> None:
        self.lines.append("  " * depth + text)

    def constant(self, value: Any) -> str:
        """A name of a value."""
        name = f"c{len(self.names)}"
        self.names[name] = value
        return name

    def end(self, fifo: str, port: str) -> str:
        """The name of a core's end of a fifo."""
        if (fifo, port) not in self._ends:
            if (fifo, port) not in self.core.ends:
                raise SimulationError(f"{self.core.name} uses the {port} end of {fifo}, which is on another tile.")
            self._ends[fifo, port] = self.constant(self.core.ends[fifo, port])
        return self._ends[fifo, port]

    def block(self, block: Block, depth: int) -> None:
        """Add statements."""
        before = len(self.lines)
        for s in block:
            match s:
                case For():
                    self.add(depth, f"for {s.var} in range({self.number(s.start)}, {self.number(s.stop)}, {s.step}):")
                    self.block(s.body, depth + 1)
                    self.turned(s, depth + 1)
                case If():
                    self.add(depth, f"if {self.number(s.condition)}:")
                    self.block(s.then, depth + 1)
                    if s.otherwise:
                        self.add(depth, "else:")
                        self.block(s.otherwise, depth + 1)
                case _:
                    self.statement(s, depth)
        if len(self.lines) == before:
            self.add(depth, "pass")

    def until(self, depth: int, condition: str, on: str, what: str) -> None:
        """Add a wait: on a semaphore, until a condition holds."""
        self.waits = True
        self.add(depth, f"while not ({condition}):")
        self.add(depth + 1, f"{self.blocked(on, what)}; yield")

    def number(self, e: Expr) -> str:
        """An expression."""
        if isinstance(e, Const):
            return repr(e.value)
        if isinstance(e, Var):
            return e.name
        assert isinstance(e, Binary)
        if e.op in ("min", "max"):
            return f"{e.op}({self.number(e.left)}, {self.number(e.right)})"
        if e.op in ("div", "rem"):
            return self.divided(e)
        return f"({self.number(e.left)} {_SIGNS[e.op]} {self.number(e.right)})"
