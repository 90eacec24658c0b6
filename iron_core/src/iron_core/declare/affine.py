"""Integer expressions in one per-call value: what offsets, bounds, trip counts and carried values are made of.

`Affine` is `((v * scale + bias) // divisor >> down) * mul + add` of one per-call value v (both divisions round down), and is
kept in one form: an odd divisor, no factor common to it and the scale, a positive `mul`. So two spellings of one expression
are equal data, `-(-n // 8)` and `(n + 7) // 8`, or `(p + 1) * 64` and `64 * p + 64`. Linear forms have `divisor == 1`,
`down == 0, mul == 1, add == 0`. `Affine.row` is the same as a device is given it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import numpy as np

from iron_core.declare.row import Row, number
from iron_core.errors import TraceError


def _integer(other: Any) -> bool:
    return isinstance(other, (int, np.integer)) and not isinstance(other, bool)


@attrs.frozen(eq=False, repr=False)
class Affine:
    """A per-call integer. `value` is the name of the per-call value it follows."""

    value: str
    scale: int = 1
    bias: int = 0
    divisor: int = 1
    down: int = 0
    mul: int = 1
    add: int = 0

    def __attrs_post_init__(self) -> None:
        inner = (abs(self.scale) << 32) + abs(self.bias)
        outer = (inner // self.whole + 1) * abs(self.mul) + abs(self.add)
        if max(inner, outer) >> 63:
            raise TraceError(f"the per-call expression `{self!r}` leaves 64 bits for some {self.value}; legal: what stays within them.")

    # Identity is data; `==` between per-call values would be a branch, so it is refused below.
    @property
    def key(self) -> tuple[Any, ...]:
        return (self.value, self.scale, self.bias, self.divisor, self.down, self.mul, self.add)

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def linear(self) -> bool:
        return self.whole == 1

    @property
    def whole(self) -> int:
        """What it divides by in all."""
        return self.divisor << self.down

    def at(self, values: Mapping[str, int]) -> int:
        """The number this is when the per-call values are `values`."""
        return number(int(values[self.value]), self.scale, self.bias, self.divisor, self.down, self.mul, self.add)

    def row(self, plane: int = 0, index: int = 0, shift: int = 0) -> Row:
        """The row of a table that follows value `index` of a plane, shifted left."""
        return Row(plane, index, self.scale, self.bias, self.divisor, self.down, self.mul, self.add, shift)

    def of(self, argument: Affine | int) -> Affine | int:
        """This expression with another in place of its value. TraceError where that has no form."""
        return (argument * self.scale + self.bias) // self.whole * self.mul + self.add

    def __add__(self, other: Any) -> Affine | int:
        if isinstance(other, Affine):
            return self._combine(other, 1)
        if not _integer(other):
            return NotImplemented
        return _form(self.value, self.scale, self.bias, self.whole, self.mul, self.add + int(other))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Affine | int:
        if isinstance(other, Affine):
            return self._combine(other, -1)
        if not _integer(other):
            return NotImplemented
        return self + -int(other)

    def __rsub__(self, other: Any) -> Affine | int:
        return -1 * self + other

    def __neg__(self) -> Affine | int:
        return self * -1

    def __mul__(self, other: Any) -> Affine | int:
        if isinstance(other, Affine):
            raise TraceError("a product of two per-call values is not affine; multiply by a constant.")
        if isinstance(other, float):
            raise TraceError(f"the per-call value `{self!r}` is multiplied by {other}; only whole numbers multiply one.")
        if not _integer(other):
            return NotImplemented
        return self.times(int(other)) if other else 0

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Affine | int:
        if isinstance(other, Affine):
            if self.linear and other.linear and self.value == other.value and other.scale:
                k, rest = divmod(self.scale, other.scale)
                if not rest and self.bias == other.bias * k:
                    return k
            raise TraceError("per-call values divide only where the quotient is constant, as in (4 * n) // n.")
        if not _integer(other) or int(other) <= 0:
            raise TraceError(f"a per-call value is divided by {other!r}; only positive integers divide one.")
        k = int(other)
        if self.linear:
            return _form(self.value, self.scale, self.bias, k)
        common = math.gcd(self.mul, k)
        mul, add, k = self.mul // common, self.add // common, k // common
        if k == 1:
            return _form(self.value, self.scale, self.bias, self.whole, mul, add)
        if mul == 1:
            return _form(self.value, self.scale, self.bias + add * self.whole, self.whole * k)
        raise TraceError(
            f"`{self!r}` is divided by {other}; what was divided and then multiplied by {self.mul} divides again by what divides "
            f"{self.mul}, or by a multiple of it."
        )

    def _inexact(self, other: Any) -> Any:
        raise TraceError(
            f"`{self!r}` meets {other!r} in / or %, which per-call values do not have; legal: + and -, * by a constant, // by a "
            "constant."
        )

    __truediv__ = __rtruediv__ = __mod__ = __rmod__ = __rfloordiv__ = _inexact

    def times(self, k: int) -> Affine:
        """The product by a constant other than 0."""
        return _form(self.value, self.scale, self.bias, self.whole, self.mul * k, self.add * k)

    def exactly(self, k: int) -> Affine | None:
        """The quotient by `k` where it is whole whatever the value; else None."""
        if self.linear:
            whole = self.scale % k == 0 and self.bias % k == 0
            return attrs.evolve(self, scale=self.scale // k, bias=self.bias // k) if whole else None
        whole = self.mul % k == 0 and self.add % k == 0
        return attrs.evolve(self, mul=self.mul // k, add=self.add // k) if whole else None

    def ceildiv(self, k: int) -> Affine | int:
        """The quotient by `k`, rounded up."""
        return (self + (k - 1)) // k

    def stepped(self, start: int, step: int) -> Affine:
        """How many of this number are left of every `step`-th from `start` on, which is less than `step`."""
        left = (self + (step - 1 - start)) // step
        assert isinstance(left, Affine)  # (the quotient of one by a number is one)
        return left

    def _combine(self, other: Affine, sign: int) -> Affine | int:
        if self.value != other.value:
            raise TraceError(
                f"`{self.value}` and `{other.value}` meet in one expression; a per-call expression follows one value. "
                "Pass their combination as a value of its own."
            )
        if not (self.linear and other.linear):
            raise TraceError("only linear per-call expressions add up; divide after adding.")
        scale, bias = self.scale + sign * other.scale, self.bias + sign * other.bias
        return attrs.evolve(self, scale=scale, bias=bias) if scale else bias

    def _branch(self, *_: Any) -> Any:
        raise TraceError(
            f"a graph body branches on the per-call value `{self.value}`. It is unknown while tracing: "
            "pass a different input shape, or compute with it."
        )

    def _number(self, *_: Any) -> Any:
        raise TraceError(
            f"the per-call value `{self.value}` is used as a number, which it is not while tracing. An array is indexed by it as "
            "iron.weight(array)[...]; a shape or a field cannot follow it."
        )

    __bool__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _branch
    __index__ = __int__ = __float__ = _number

    def __format__(self, spec: str) -> str:
        return repr(self)  # what a body prints of it is its name, whatever the number's format

    def __repr__(self) -> str:
        text = self.value if self.scale == 1 else f"{self.scale}*{self.value}"
        if self.bias:
            text += f" {'+' if self.bias > 0 else '-'} {abs(self.bias)}"
        if not self.linear:
            text = f"({text}) // {self.whole}"
        if self.mul != 1:
            text = f"({text}) * {self.mul}"
        if self.add:
            text += f" {'+' if self.add > 0 else '-'} {abs(self.add)}"
        return text


def _form(value: str, scale: int, bias: int, divisor: int, mul: int = 1, add: int = 0) -> Affine:
    """``(v * scale + bias) // divisor * mul + add`` in its one form."""
    common = math.gcd(scale, divisor)
    scale, bias, divisor = scale // common, bias // common, divisor // common
    if divisor == 1:
        return Affine(value, scale * mul, bias * mul + add)
    if mul < 0:  # minus a quotient rounded down is one of minus the number, rounded up
        scale, bias, mul = -scale, divisor - 1 - bias, -mul
    down = (divisor & -divisor).bit_length() - 1
    return Affine(value, scale, bias, divisor >> down, down, mul, add)


def by_key(item: Any) -> Any:
    """What records that hold expressions are compared by: an expression's key, a tuple's items alike, else the item."""
    if isinstance(item, tuple):
        return tuple(by_key(part) for part in item)
    return item.key if isinstance(item, Affine) else item


def evaluate(expression: Affine | int, values: Mapping[str, int]) -> int:
    """The number of an Affine or a plain int under these per-call values."""
    return expression.at(values) if isinstance(expression, Affine) else int(expression)


def bounded_shape(
    shape: tuple[int, ...], bounds: Iterable[tuple[int, Affine | int]], values: Mapping[str, int]
) -> tuple[int, ...]:
    """A tensor's shape cut to a call's bounds, (axis, expression): no axis is longer than it was."""
    found = list(shape)
    for axis, expression in bounds:
        found[axis] = min(found[axis], evaluate(expression, values))
    return tuple(found)
