"""What a host lowering answers: one kernel and what goes into its slots.

Slots are named by the kernel's table (`slots.Slots`). A slot that follows a per-call number is a `Member`; the run list
turns it into a binding that the native loop evaluates before the step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import numpy as np

from iron_core.declare.affine import Affine
from iron_core.graph.traced import Binding
from iron_core.image.plan import BufferRef
from iron_core.lowering import Lowering
from iron_core.lowering.answer import No, Yes
from iron_host.build import Unit
from iron_host.slots import Filled


@attrs.frozen
class Member:
    """An integer slot that is a per-call number times `unit`."""

    expression: Affine
    unit: int = 1


@attrs.frozen
class Pointer:
    """A pointer slot: `offset` bytes into an operand, plus `unit` bytes times a per-call number, if it follows one."""

    operand: str
    offset: int = 0
    expression: Affine | None = None
    unit: int = 0


@attrs.frozen
class Blocks:
    """A pointer slot at weights that a kernel multiplies in tiles: at those where they are a weight of the graph, else at the weights
    themselves. The integer slot named `says` is which, 1 or 0. `size`: matrices' rows and depth, and how many. `panels`: what makes
    those of dense weights."""

    operand: str
    says: str
    size: tuple[int, int, int]
    panels: Unit | None = None


@attrs.frozen(eq=False)
class Constant:
    """A pointer slot at numbers that belong to the image."""

    array: np.ndarray


@attrs.frozen
class Lines:
    """How a kernel's result may be cut: it computes each line alone. A step that is folded is called for some lines at a time.

    numbers: operand -> its numbers of one line; of an operand that is not named every line reads all. count: the integer slot
    that says how many there are, `of_count` for each line.
    """

    numbers: Mapping[str, int]
    count: str = "valid"
    of_count: int = 1


@attrs.frozen(eq=False)
class KernelCall:
    """One kernel with its slots, filled by name.

    A pointer slot is an operand's name, a `Pointer`, `Blocks`, a `Constant` or None; an integer slot an int or a
    `Member`. `scratch_bytes` are per thread, `shared_bytes` for the step; `threads` 0 means all. `parts`: into how many
    each thread's share is cut, 0 for the run loop's own count. A call that prepares the shared area for the next ones
    `shares` "writes", one that only reads it "reads": the same preparation is not made twice in a row. `work` (in any
    unit) is how large the call is beside others of its kind. `lines`: how its result may be cut, for steps that are
    folded into one kernel; None: not at all.
    """

    unit: Unit
    slots: Filled
    scratch_bytes: int = 0
    shared_bytes: int = 0
    threads: int = 0
    parts: int = 0
    shares: str = ""
    work: int = 0
    lines: Lines | None = None


class HostLowering(Lowering):
    """How the host takes one operator. Subclasses give `step()`, and `supports()` where the kernel has limits."""

    backend = "host"

    def supports(self, op: Any, dev: str) -> Yes | No:
        return Yes("kernel")

    def step(
        self, op: Any, operands: Mapping[str, BufferRef], bindings: Mapping[str, Binding], tunables: Mapping[str, Any]
    ) -> KernelCall | Iterable[KernelCall] | No:
        """The kernel call, or calls in order, that compute this step; No where no kernel does."""
        raise TypeError(f"{type(self).__name__} defines no step().")

    def operations(self, op: Any, shapes: Mapping[str, tuple[int, ...]]) -> int:
        """Multiplications and additions of one call, for profiles: 0 where they are not what the step waits for.

        shapes: the operands' shapes, cut to the call's bounds.
        """
        return 0

    def integers(self, op: Any) -> bool:
        """Are those operations of int8?"""
        return False

    def moved(self, op: Any, sizes: Mapping[str, int]) -> int:
        """Bytes one call has to read and write at least, for profiles. sizes: the operands', cut to the call's bounds."""
        return sum(sizes.values())

    @staticmethod
    def count(op: Any, bindings: Mapping[str, Binding], extent: str, unit: int = 1) -> int | Member:
        """`unit` times an extent's field, or times its per-call bound where the step has one."""
        if extent in bindings:
            return Member(bindings[extent].expression, unit)
        return getattr(op, type(op).extents[extent].field) * unit
