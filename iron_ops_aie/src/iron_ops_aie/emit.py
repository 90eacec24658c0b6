"""`Emit`: the per-call words and carried values of a graph's next call."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import In, Operator, Out, Param, Tolerance
from iron_core.declare.affine import Affine
from iron_core.declare.testing import Case, Testing
from iron_core.errors import ParamError

#: A program row: out = ((planes[plane, index] * scale + bias) >> down) * mul + add, then << shift.
ROW = ("plane", "index", "scale", "bias", "down", "mul", "add", "shift")


def program_row(expression: Any, plane: int = 0, index: int = 0, shift: int = 0) -> tuple[int, ...]:
    """The program row of a per-call expression (an `Affine` of the value at [plane, index], or an int), shifted left."""
    if isinstance(expression, Affine):
        e = expression
        return (plane, index, e.scale, e.bias, e.down, e.mul, e.add, shift)
    return (0, 0, 0, 0, 0, 0, int(expression), shift)


class Emit(Operator):
    """Evaluate a table of Affine forms: what a call's values make of the next call's.

    planes: (2, carried) int32; plane 0 the values this call started from, plane 1 those it computed. program:
    (slots + carried, 8) int32, a `ROW` each. words: (slots,) int32, the next call's word image; state: (carried,)
    int32, its carried values. Arithmetic wraps at 32 bits; an all-zero row gives 0.

    Errors: ParamError where program has another number of rows.
    """

    carried: int = Param()
    slots: int = Param()
    rows: int = Param(default=lambda op: op.slots + op.carried)
    planes = In(2, carried, dtype=np.int32)
    program = In(rows, len(ROW), dtype=np.int32)
    words = Out(slots, dtype=np.int32)
    state = Out(carried, dtype=np.int32)

    test = Testing(Case(carried=2, slots=5), draw=lambda op: dict(program=_program))

    def validate(self) -> None:
        if self.rows != self.slots + self.carried:
            raise ParamError(f"Emit: program has {self.rows} rows, not slots={self.slots} plus carried={self.carried}.")

    def reference(self, planes: Any, program: Any) -> Any:
        plane, index, scale, bias, down, mul, add, shift = np.asarray(program, np.int64).T
        value = _wrap(planes.astype(np.int64)[plane, index] * scale + bias)
        out = _wrap(_wrap(_wrap(value >> down) * mul + add) << shift)
        return out[: self.slots], out[self.slots :]

    def tolerance(self) -> Tolerance:
        return Tolerance(exact=True)


def _wrap(values: np.ndarray) -> np.ndarray:
    return (values & 0xFFFFFFFF).astype(np.uint32).view(np.int32).astype(np.int64)


def _program(op: Any, rng: np.random.Generator) -> np.ndarray:
    high = np.array([2, op.carried, 100, 100, 3, 4, 50, 3])
    return rng.integers(0, high, (op.rows, len(ROW)))
