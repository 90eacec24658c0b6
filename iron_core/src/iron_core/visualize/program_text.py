"""What a core does, in words: its recorded program as indented lines."""

from __future__ import annotations

import re
from collections.abc import Iterator

from iron_core.array.design import ArrayDesign, CoreData
from iron_core.array.expression import Expr
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
    Statement,
    Store,
    Subview,
    WaitBarrier,
)
from iron_core.visualize.array_plan import DIGEST


def program_text(core: CoreData) -> str:
    """A program, a statement a line."""
    held: dict[str, str] = {}
    lines = list(_block(core.program, held, 1 if core.forever else 0))
    return "\n".join(["forever:", *lines] if core.forever else lines)


def programs(array: ArrayDesign) -> list[tuple[tuple[str, ...], str]]:
    """Each different program of an array, with its cores: programs that differ by the numbers in names alone are one."""
    found: dict[str, tuple[list[str], str]] = {}
    for core in array.cores:
        text = program_text(core)
        found.setdefault(re.sub(r"(?<=[A-Za-z_])\d+", "*", text), ([], text))[0].append(core.name)
    return [(tuple(names), text) for names, text in found.values()]


def _block(block: Block, held: dict[str, str], depth: int) -> Iterator[str]:
    for statement in block:
        if isinstance(statement, Acquire):
            held[statement.name] = statement.fifo
        if isinstance(statement, For):
            by = f" by {statement.step}" if statement.step != 1 else ""
            yield f"{'  ' * depth}for {statement.var} from {statement.start} to {statement.stop}{by}:"
            yield from _block(statement.body, held, depth + 1)
        elif isinstance(statement, If):
            yield f"{'  ' * depth}if {statement.condition}:"
            yield from _block(statement.then, held, depth + 1)
            if statement.otherwise:
                yield f"{'  ' * depth}else:"
                yield from _block(statement.otherwise, held, depth + 1)
        else:
            yield f"{'  ' * depth}{_line(statement, held)}"


def _line(statement: Statement, held: dict[str, str]) -> str:
    match statement:
        case Acquire(fifo=fifo, port=port, count=count):
            return f"acquire {count} of {fifo} to {'fill' if port == 'produce' else 'read'}"
        case Release(fifo=fifo, count=count):
            return f"release {count} of {fifo}"
        case Call(kernel=kernel, args=args):
            return f"{DIGEST.sub('', kernel)}({', '.join(_memory(a, held) if not isinstance(a, Expr) else repr(a) for a in args)})"
        case Load(name=name, memory=memory, index=index):
            return f"{name} = {_memory(memory, held)}[{index}]"
        case Store(memory=memory, index=index, value=value):
            return f"{_memory(memory, held)}[{index}] = {value}"
        case WaitBarrier(barrier=barrier, value=value):
            return f"wait until {barrier} is {value}"
        case RaiseBarrier(barrier=barrier, value=value):
            return f"{barrier} += {value}"
        case AcquireLock(lock=lock, value=value):
            return f"take {value} of {lock}"
        case ReleaseLock(lock=lock, value=value):
            return f"give {value} to {lock}"
        case SetRounding(mode=mode):
            return f"round by {mode}"
    raise AssertionError(statement)


def _memory(memory: Memory, held: dict[str, str]) -> str:
    match memory:
        case Element(acquired=acquired, index=index):
            return f"{held.get(acquired, acquired)}#{index}" if index else held.get(acquired, acquired)
        case Local(buffer=buffer):
            return buffer
        case Subview(base=base, offset=offset, type=kind):
            return f"{_memory(base, held)}[{offset}: {kind.elements}]"
    raise AssertionError(memory)
