"""`TemplateLowering`: an operator that one kernel template computes, its slots filled by name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from iron_core.graph.traced import Binding
from iron_core.image.plan import BufferRef
from iron_core.lowering.answer import No, Yes
from iron_host.build import Header
from iron_host.kernel_call import KernelCall, Lines
from iron_host.lowerings.sharing import Sharing
from iron_host.lowerings.units import FLOATS, cpp, takes, unit
from iron_host.slots import Slots


class TemplateLowering(Sharing):
    """`template<storage types>` of `header`, whose `slots` are named as the operator names what goes into them.

    A pointer slot is the operand of that name, NULL where it is left out. A number is what `numbers()` gives, else the extent
    of that name (its per-call bound, if it has one), else the field. Work, which threads share, is counted in numbers.
    """

    header: ClassVar[str | Header] = ""
    template: ClassVar[str] = ""
    slots: ClassVar[Slots]
    #: The dtype fields that the template's arguments are the storage types of.
    dtypes: ClassVar[tuple[str, ...]] = ("T",)

    @property
    def label(self) -> str:
        """What `explain()` calls the kernel."""
        return self.template.rpartition("::")[2]

    def supports(self, op: Any, dev: str) -> Yes | No:
        return takes(op, self.label, **dict.fromkeys(self.dtypes, FLOATS))

    def arguments(self, op: Any) -> tuple[str, ...]:
        """The template's arguments, as C++ has them."""
        return tuple(cpp(getattr(op, field)) for field in self.dtypes)

    def numbers(self, op: Any) -> Mapping[str, Any]:
        """Slots that have another name than what goes into them."""
        return {}

    def work(self, op: Any) -> int:
        """Numbers that are worth sharing: those of the largest operand."""
        return max(math.prod(op.shape(name)) for name in op.present)

    def lines(self, op: Any) -> Lines | None:
        """How the result may be cut, or None: by the contract, where that says elementwise or rowwise and `valid` counts it."""
        extent = type(op).extents.get("valid")
        if extent is None or "valid" not in self.slots.ints or not (op.elementwise or op.rowwise):
            return None
        rows = getattr(op, extent.field)
        counted = [name for name in op.present if getattr(op.operands[name].dims[0], "name", None) == extent.field]
        return Lines({name: math.prod(op.shape(name)) // rows for name in counted})

    def step(
        self, op: Any, operands: Mapping[str, BufferRef], bindings: Mapping[str, Binding], tunables: Mapping[str, Any]
    ) -> KernelCall | No:
        given: dict[str, Any] = {name: name for name, _ in self.slots.pointers if name in operands}
        given |= self.numbers(op)
        for name in (*self.slots.ints, *self.slots.floats):
            if name not in given:
                given[name] = self.count(op, bindings, name) if name in type(op).extents else getattr(op, name)
        kernel = unit(self.header, self.template, *self.arguments(op))
        return KernelCall(kernel, self.slots(**given), **self.shared_by(tunables, self.work(op)), lines=self.lines(op))
