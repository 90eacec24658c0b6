"""Links: elementwise steps that an operator's cores apply to its output's tiles (a finish) or its input's (a prepare)."""

from __future__ import annotations

from typing import Any

import attrs

from iron_core.declare.operand import BoundOperand, Operand
from iron_core.errors import Unresolvable

CHAINS = ("finish", "prepare")


@attrs.frozen(eq=False)
class Link:
    """One step of a chain. op: what it computes; at: which of its inputs, by number or name, is the tile."""

    op: Any
    at: Any = 0

    @property
    def position(self) -> int:
        names = [operand.name for operand in self.op.inputs]
        if self.at in names:
            return names.index(self.at)
        return self.at if isinstance(self.at, int) else -1

    @property
    def others(self) -> tuple[Operand, ...]:
        """Its further inputs."""
        return tuple(o for i, o in enumerate(self.op.inputs) if i != self.position and o.present(self.op))

    def arguments(self, tile: Any, others: Any) -> list[Any]:
        """The tile and the further inputs, in the order of its inputs."""
        given = list(others)
        given.insert(self.position, tile)
        return given

    def at_line(self, line: int, dev: Any = None) -> Any:
        """Its operator over one line of one core. Unresolvable where it cannot run there."""
        op = self.op
        sizes = dict(size=line, tile_size=line, num_aie_columns=1, num_channels=1)
        if not (op.elementwise and set(sizes) <= set(op.fields) and set(op.values) <= {"count"}):
            raise Unresolvable(f"{type(op).__name__} cannot be folded. Legal: elementwise operators on the shared array.")
        twin = op.evolve(**sizes)
        twin.compatible(dev)
        return twin

    def check(self, where: str, name: str, bound: BoundOperand) -> None:
        """Unresolvable unless it is elementwise, and its tensors are like the one (`name`, `bound`) that it is a step on."""
        where = f"{where}: {type(self.op).__name__}"
        outputs = [o for o in self.op.outputs if o.present(self.op)]
        if len(outputs) != 1 or not self.op.elementwise:
            raise Unresolvable(f"{where} is not elementwise with one output, which is legal.")
        if not 0 <= self.position < len(self.op.inputs):
            raise Unresolvable(f"{where} has no input {self.at}; it has {len(self.op.inputs)}.")
        for one in (*self.op.inputs, *outputs):
            mine = getattr(self.op, one.name)
            if mine.format != bound.format or mine.size != bound.size:
                raise Unresolvable(
                    f"{where}.{one.name} is {mine.size} of {mine.format}; {name} is {bound.size} of {bound.format}. Legal: the same."
                )


def riding(op: Any, chain: str, step: int) -> tuple[str, ...]:
    """Names that a step's further inputs have as operands of the operator it is folded into."""
    return tuple(f"{chain}{step}_{other.name}" for other in getattr(op, chain)[step].others)


def target(op: Any, chain: str) -> Operand:
    """The one operand a chain applies to: the output with `finish=`, the input with `prepare=`."""
    found = [o for o in (op.base.outputs if chain == "finish" else op.base.inputs) if getattr(o, chain)]
    if len(found) != 1:
        raise Unresolvable(f"{type(op.base).__name__} has {len(found)} operands declared {chain}=; a chain is for exactly one.")
    return found[0]
