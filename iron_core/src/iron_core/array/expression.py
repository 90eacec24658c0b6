"""Integer expressions of a recorded core program: constants, variables and arithmetic on them.

They are data: frozen, hashable and printed alike in every process. Arithmetic is that of a core's 32-bit
registers, with floor division and remainder of numbers that are not negative.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from iron_core.errors import DeclarationError

#: Operation -> how it is written.
ARITHMETIC = {"add": "+", "sub": "-", "mul": "*", "div": "//", "rem": "%"}
COMPARISON = {"lt": "<", "le": "<=", "eq": "==", "ne": "!=", "gt": ">", "ge": ">="}
CHOICE = ("min", "max")


class Expr:
    """Base of the expressions; also what a core function computes with."""

    def __add__(self, other: Any) -> Expr:
        return binary("add", self, other)

    def __radd__(self, other: Any) -> Expr:
        return binary("add", other, self)

    def __sub__(self, other: Any) -> Expr:
        return binary("sub", self, other)

    def __rsub__(self, other: Any) -> Expr:
        return binary("sub", other, self)

    def __mul__(self, other: Any) -> Expr:
        return binary("mul", self, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Expr:
        return binary("div", self, other)

    def __mod__(self, other: Any) -> Expr:
        return binary("rem", self, other)

    def __lt__(self, other: Any) -> Expr:
        return binary("lt", self, other)

    def __le__(self, other: Any) -> Expr:
        return binary("le", self, other)

    def __gt__(self, other: Any) -> Expr:
        return binary("gt", self, other)

    def __ge__(self, other: Any) -> Expr:
        return binary("ge", self, other)

    def equals(self, other: Any) -> Expr:
        """A comparison (`==` compares the expressions as data)."""
        return binary("eq", self, other)

    def differs(self, other: Any) -> Expr:
        return binary("ne", self, other)

    def __bool__(self) -> bool:
        raise DeclarationError(
            f"a core function branches on {self} in Python, which runs once, while recording. Use `with if_(...):`."
        )

    def __index__(self) -> int:
        raise DeclarationError(f"{self} is known on the core only; a shape or a Python loop cannot follow it.")

    __int__ = __index__


@attrs.frozen(repr=False, order=False)
class Const(Expr):
    """A number; a float only where a kernel takes one."""

    value: int | float

    def __repr__(self) -> str:
        return str(self.value)


@attrs.frozen(repr=False, order=False)
class Var(Expr):
    """An induction variable or a loaded word. `name` is unique in its program."""

    name: str

    def __repr__(self) -> str:
        return self.name


@attrs.frozen(repr=False, order=False)
class Binary(Expr):
    """`left op right`. op: a key of ARITHMETIC or COMPARISON, or one of CHOICE."""

    op: str
    left: Expr
    right: Expr

    def __repr__(self) -> str:
        sign = ARITHMETIC.get(self.op) or COMPARISON.get(self.op)
        return f"({self.left} {sign} {self.right})" if sign else f"{self.op}({self.left}, {self.right})"


def expr(value: Any) -> Expr:
    """A number or expression as an expression."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return Const(int(value))
    raise DeclarationError(f"{value!r} in a core's arithmetic; legal: whole numbers, loop variables, loaded words.")


def binary(op: str, left: Any, right: Any) -> Expr:
    """`left op right`, folded where both are constants."""
    a, b = expr(left), expr(right)
    if isinstance(a, Const) and isinstance(b, Const):
        return Const(int(apply(op, int(a.value), int(b.value))))
    if op in ("add", "sub") and b == Const(0):
        return a
    if op == "add" and a == Const(0):
        return b
    if op in ("mul", "div") and b == Const(1):
        return a
    if op == "mul" and a == Const(1):
        return b
    return Binary(op, a, b)


def minimum(left: Any, right: Any) -> Expr:
    """The smaller of two."""
    return binary("min", left, right)


def maximum(left: Any, right: Any) -> Expr:
    """The larger of two."""
    return binary("max", left, right)


def apply(op: str, a: int, b: int) -> int:
    """One operation on numbers: what the expressions mean."""
    match op:
        case "add":
            return a + b
        case "sub":
            return a - b
        case "mul":
            return a * b
        case "div":
            return a // b
        case "rem":
            return a % b
        case "min":
            return min(a, b)
        case "max":
            return max(a, b)
        case "lt":
            return int(a < b)
        case "le":
            return int(a <= b)
        case "gt":
            return int(a > b)
        case "ge":
            return int(a >= b)
        case "eq":
            return int(a == b)
        case "ne":
            return int(a != b)
    raise ValueError(f"no operation {op}")


def evaluate(e: Expr, variables: dict[str, int]) -> int:
    """The number of an expression under these variables."""
    if isinstance(e, Const):
        return int(e.value)
    if isinstance(e, Var):
        return variables[e.name]
    assert isinstance(e, Binary)
    return apply(e.op, evaluate(e.left, variables), evaluate(e.right, variables))


def variables(e: Expr) -> frozenset[str]:
    """Names of the variables an expression reads."""
    if isinstance(e, Var):
        return frozenset((e.name,))
    if isinstance(e, Binary):
        return variables(e.left) | variables(e.right)
    return frozenset()
