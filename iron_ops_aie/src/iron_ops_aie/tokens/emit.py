"""`Emit`: the per-call words and carried values of a graph's next call."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import Case, In, Kernel, KernelContract, ObjectFifo, Operator, Out, Param, Testing, Tolerance, Worker
from iron_core.declare.row import Row
from iron_core.errors import ParamError

# A core has no divider, so the quotient is made bit by bit. Products may leave 64 bits: only the low 32 count.
_EMIT = """
#include <stdint.h>
static int64_t divided(int64_t x, int64_t by) {
  uint64_t number = x < 0 ? ~(uint64_t)x : (uint64_t)x, rest = 0, quotient = 0;
  for (int bit = 63; bit >= 0; bit--) {
    rest = rest << 1 | (number >> bit & 1);
    quotient <<= 1;
    if (rest >= (uint64_t)by) {
      rest -= by;
      quotient |= 1;
    }
  }
  return (int64_t)(x < 0 ? ~quotient : quotient);
}
extern "C" void KERNEL(const int32_t *planes, const int32_t *program, int32_t *words, int32_t *state) {
  for (int i = 0; i < SLOTS + CARRIED; i++, program += 9) {
    int64_t x = (int64_t)planes[program[0] * CARRIED + program[1]] * program[2] + program[3];
    if (program[4] > 1)
      x = divided(x, program[4]);
    uint64_t made = ((uint64_t)(x >> program[5]) * (uint64_t)program[6] + (uint64_t)program[7]) << program[8];
    (i < SLOTS ? words[i] : state[i - SLOTS]) = (int32_t)(uint32_t)made;
  }
}
"""


class Emit(Operator):
    """Evaluate a table of rows: what a call's values make of the next call's.

    planes: (2, carried) int32; plane 0 the values this call started from, plane 1 those it computed. program:
    (slots + carried, 9) int32, a `Row` each. words: (slots,) int32, the next call's word image; state: (carried,)
    int32, its carried values. Of every number the low 32 bits are kept; an all-zero row gives 0.

    No graph calls it: a full ELF that loops by itself has it behind its other steps (see `iron_core.image.feedback`). The CPU's loop
    evaluates the same rows natively, so there it has no kernel.

    The array is one core that holds all of it.

    Errors: ParamError where program has another number of rows.
    """

    carried: int = Param(array=True)
    slots: int = Param(array=True)
    rows: int = Param(default=lambda op: op.slots + op.carried, array=True)
    planes = In(2, carried, dtype=np.int32, tile=(2, carried))
    program = In(rows, len(Row._fields), dtype=np.int32, tile=(rows, len(Row._fields)))
    words = Out(slots, dtype=np.int32, tile=slots)
    state = Out(carried, dtype=np.int32, tile=carried)

    test = Testing(
        Case(carried=2, slots=5, lower=True),
        Case(carried=1, slots=1, lower=True),
        Case(carried=3, slots=32, lower=True),
        draw=lambda op: dict(program=_program),
    )

    def validate(self) -> None:
        legal = self.slots + self.carried
        if self.rows != legal:
            raise ParamError(f"Emit: program has {self.rows} rows, not slots={self.slots} plus carried={self.carried}. Legal: {legal}.")

    def reference(self, planes: Any, program: Any) -> Any:
        out = _evaluated(np.reshape(planes, (2, self.carried)), np.reshape(program, (self.rows, len(Row._fields))))
        return out[: self.slots], out[self.slots :]

    def tolerance(self) -> Tolerance:
        return Tolerance(exact=True)

    # -- the array ---------------------------------------------------------------------------------

    def kernel(self) -> Kernel:
        """The `Kernel` of the whole table."""
        contract = KernelContract(roles=(In, In, Out, Out), reference=self.reference, tolerance=self.tolerance())
        types = [operand.tile for operand in (self.planes, self.program, self.words, self.state)]
        return Kernel.inline("emit", _EMIT, types, contract, dict(SLOTS=self.slots, CARRIED=self.carried))

    def array(self, target: Any) -> None:
        def core(planes: Any, program: Any, words: Any, state: Any, kernel: Any) -> None:
            ends = (planes, program, words, state)
            kernel(*[end.acquire() for end in ends])
            for end in ends:
                end.release()

        ends: list[Any] = []
        for name in ("planes", "program"):
            fifo = ObjectFifo(getattr(self, name).tile, depth=1, name=name)
            fifo.prod(tile=getattr(self, name).lane(0))
            ends.append(fifo.cons())
        for name in ("words", "state"):
            fifo = ObjectFifo(getattr(self, name).tile, depth=1, name=name)
            fifo.cons(tile=getattr(self, name).lane(0))
            ends.append(fifo.prod())
        Worker(core, [*ends, self.kernel()], name="core")

    def composed(self, planes: Any, program: Any) -> Any:
        return self.reference(planes, program)


def _evaluated(planes: np.ndarray, program: np.ndarray) -> np.ndarray:
    """Every row's number, its low 32 bits. planes, program: as `Emit` takes them."""
    plane, index, scale, bias, divisor, down, mul, add, shift = program.astype(np.int64).T
    whole = (planes.astype(np.int64)[plane, index] * scale + bias) // np.maximum(divisor, 1) >> down
    return (whole * mul + add << shift).astype(np.uint64).astype(np.uint32).view(np.int32)


def _program(op: Any, rng: np.random.Generator) -> np.ndarray:
    high = np.array([2, op.carried, 100, 100, 9, 3, 4, 50, 3])
    return rng.integers(0, high, (op.rows, len(Row._fields)))
