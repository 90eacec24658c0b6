"""`Row`: how one per-call number is made of another, as nine integers. What every device is given, and what defines them.

The reference run, the host's native loop, the simulator, `Emit` and what the npu backend hands over evaluate the same rows,
to the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


def number(v: int, scale: int, bias: int, divisor: int, down: int, mul: int, add: int, shift: int = 0) -> int:
    """``(((v * scale + bias) // divisor >> down) * mul + add) << shift``, exact; both divisions round down.

    divisor: at least 1. 0 divides nothing either, so a row of zeros is 0.
    """
    return (((v * scale + bias) // (divisor or 1) >> down) * mul + add) << shift


class Row(NamedTuple):
    """One number: that of `number`, of v = ``planes[plane][index]``. A device keeps its low 32 bits."""

    plane: int = 0
    index: int = 0  # type: ignore[assignment]  # a column of the table, not the tuple's method
    scale: int = 1
    bias: int = 0
    divisor: int = 1
    down: int = 0
    mul: int = 1
    add: int = 0
    shift: int = 0

    @classmethod
    def constant(cls, n: int, shift: int = 0) -> Row:
        """The row that is `n`, shifted left, whatever the values are."""
        return cls(scale=0, bias=int(n), shift=shift)

    def at(self, planes: Sequence[Sequence[int]]) -> int:
        """The number where the per-call values are `planes`."""
        return number(int(planes[self.plane][self.index]), *self[2:])
