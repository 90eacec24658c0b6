"""Links: steps that an operator's cores apply to its output's tiles (a finish) or its input's lines (a prepare).

Elementwise steps are either; a rowwise one stands in front of an input whose lines are its rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import attrs
import numpy as np

from iron_core.declare.operand import BoundOperand, In, Operand
from iron_core.errors import Unresolvable

CHAINS = ("finish", "prepare")


class Call(NamedTuple):
    """One of the kernels that a step is: the number of its argument that is the tile, and the further inputs that it reads."""

    kernel: Any
    position: int
    reads: tuple[str, ...]

    def arguments(self, tile: Any, others: Any) -> list[Any]:
        """The tile and what it reads, in the order of the kernel's inputs."""
        given = list(others)
        given.insert(self.position, tile)
        return given


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

    def reference(self, tile: Any, others: Any) -> Any:
        """What its operator's reference makes of a tensor and its further inputs, in the tensor's shape."""
        return np.reshape(self.op.reference(*self._shaped(tile, others)), np.shape(tile))

    def magnitude(self, tile: Any, others: Any) -> Any:
        """Its operator's `magnitude()`, likewise."""
        found = self.op.magnitude(*self._shaped(tile, others))
        return None if found is None else np.reshape(found, np.shape(tile))

    def _shaped(self, tile: Any, others: Any) -> list[Any]:
        """Its operator's inputs in their order, each in its shape, None where absent."""
        given = dict(zip((o.name for o in self.others), others, strict=True))
        given[self.op.inputs[self.position].name] = tile
        return [np.reshape(given[o.name], o.shape(self.op)) if o.name in given else None for o in self.op.inputs]

    def calls(self, line: int, dev: Any = None) -> tuple[Call, ...]:
        """The kernels that a core calls for one line, each on what the one before made. Unresolvable where it cannot run there."""
        op = self.op
        lanes = dict(num_aie_columns=1, num_channels=1)
        sizes = dict(size=line, tile_size=line, **lanes) if op.elementwise else dict(rows=1, cols=line, **lanes)
        if not (op.elementwise or op.rowwise) or not set(sizes) <= set(op.fields) or not set(op.values) <= {"count"}:
            raise Unresolvable(
                f"{type(op).__name__} cannot be folded. Legal: elementwise operators on the shared array, and rowwise ones."
            )
        twin = op.evolve(**sizes)
        twin.compatible(dev)
        if op.rowwise:
            return tuple(Call(kernel, 0, names) for kernel, names in twin.stages())
        return (Call(twin.kernel(), self.position, tuple(o.name for o in self.others)),)

    def check(self, where: str, name: str, bound: BoundOperand, rows: bool) -> None:
        """Unresolvable unless it is elementwise, or rowwise where that is legal (`rows`), and its tensors are like the one
        (`name`, `bound`) that it is a step on."""
        where = f"{where}: {type(self.op).__name__}"
        outputs = [o for o in self.op.outputs if o.present(self.op)]
        if len(outputs) != 1 or not (self.op.elementwise or (rows and self.op.rowwise)):
            legal = "elementwise or rowwise" if rows else "elementwise"
            raise Unresolvable(f"{where} is not {legal} with one output, which is legal.")
        if not 0 <= self.position < len(self.op.inputs):
            raise Unresolvable(f"{where} has no input {self.at}; it has {len(self.op.inputs)}.")
        if self.op.rowwise and self.op.cols != bound.shape[-1]:
            raise Unresolvable(f"{where} has rows of {self.op.cols}; {name}'s are {bound.shape[-1]} long. Legal: the same.")
        for one in (self.op.inputs[self.position], *self.others, *outputs):
            mine = getattr(self.op, one.name)
            size = self.op.cols if one.replicate else bound.size
            if mine.format != bound.format or mine.size != size:
                raise Unresolvable(
                    f"{where}.{one.name} is {mine.size} of {mine.format}; {name} is {bound.size} of {bound.format}. Legal: "
                    f"{size} of {bound.format}."
                )


def offset_member(operand: str) -> str:
    """The per-call member that says at which element of a larger tensor an output that is placed there begins."""
    return f"{operand}_offset"


def riding(op: Any, chain: str, step: int) -> tuple[str, ...]:
    """Names that a step's further inputs have as operands of the operator it is folded into."""
    return tuple(f"{chain}{step}_{other.name}" for other in getattr(op, chain)[step].others)


def streamed(op: Any, chain: str) -> dict[str, Operand]:
    """Further inputs of a chain that are streams of their own, by name, each with lanes and tiles as its target has: those of a
    finish, unless one of the operator's inputs is the `feed=` that they ride."""
    if chain != "finish" or not op.finish or any(operand.feed for operand in type(op.base).inputs):
        return {}
    made, like = {}, target(op, chain)
    for step in range(len(op.finish)):
        for name in riding(op, chain, step):
            made[name] = extra = In(*like.dims, dtype=like.dtype, tile=like.tile, per=like.per)
            extra.name = name
    return made


def target(op: Any, chain: str) -> Operand:
    """The one operand a chain applies to: the output with `finish=`, the input with `prepare=`."""
    found = [o for o in (op.base.outputs if chain == "finish" else op.base.inputs) if getattr(o, chain)]
    if len(found) != 1:
        raise Unresolvable(f"{type(op.base).__name__} has {len(found)} operands declared {chain}=; a chain is for exactly one.")
    return found[0]
