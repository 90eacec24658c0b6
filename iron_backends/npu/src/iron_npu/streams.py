"""What a recorded sequence asks the shims for, beside what an instruction stream does."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from iron_core.array import descriptors as planned
from iron_core.array import sequence as recorded
from iron_core.array.design import Design
from iron_core.array.fit import fit
from iron_core.array.pools import FifoPools, fifo_pools
from iron_core.declare.formats import as_format
from iron_core.devices import LENGTH_UNIT, SHIM_ROW, WORD
from iron_npu.errors import ImageError
from iron_npu.formats.descriptors import Descriptor, Dim, Update, merged
from iron_npu.formats.instructions import Stream
from iron_npu.formats.operations import DIRECTIONS, FUNCTIONS, Wait
from iron_npu.formats.registers import Transfer, interpret, same
from iron_npu.mlir.device import CONTROL_CHANNEL, packet_ids
from iron_npu.mlir.sequence import same_words

_WAYS = {"fill": "MM2S", "drain": "S2MM"}


def transfers(design: Design, placement: Mapping[str, tuple[int, int]] | None = None) -> tuple[Transfer | Wait, ...]:
    """The transfers and waits of a design's sequence, as a stream for it starts them. Descriptors' numbers are not part of that:
    they are all 0.

    placement: (column, row) per tile of its array; default: where it fits. Per-call words are words of the scratchpad.
    """
    return _Asked(design, dict(fit(design) if placement is None else placement)).steps()


def differences(stream: Stream, expected: tuple[Transfer | Wait, ...], *, folded: bool = False) -> list[str]:
    """A line for each step that a stream does otherwise than expected: shim, channel, direction, walk, argument, executions,
    token and per-call words. How many dimensions a walk is written in makes none.

    folded: as `interpret` takes it.
    """
    try:
        found = interpret(stream, folded=folded)
    except ImageError as error:
        return [str(error)]
    lines = [
        f"step {number}: {_spoken(here)}; expected: {_spoken(there)}"
        for number, (here, there) in enumerate(zip(found, expected, strict=False))
        if not same(here, there)
    ]
    if len(found) != len(expected):
        more = (found if len(found) > len(expected) else expected)[min(len(found), len(expected))]
        lines.append(f"{len(found)} steps; expected: {len(expected)}; the first one over: {_spoken(more)}")
    return lines


def _spoken(step: Transfer | Wait) -> str:
    return step.line() if isinstance(step, Wait) else step.spoken()


class _Asked:
    """The steps of one design's sequence."""

    def __init__(self, design: Design, placement: dict[str, tuple[int, int]]) -> None:
        self.array, self.sequence, self.placement = design.array, design.sequence, placement
        self.pools: FifoPools = fifo_pools(design.array, placement)
        self.packets = packet_ids(design.array)
        self.arguments = {argument.operand: number for number, argument in enumerate(design.sequence.arguments)}
        first = same_words(design.sequence)
        kept = list(dict.fromkeys(first.values()))
        self.numbers = {word: kept.index(one) for word, one in first.items()}
        self.tasks: dict[int, recorded.Transfer] = {}

    def steps(self) -> tuple[Transfer | Wait, ...]:
        found: list[Transfer | Wait] = []
        for step in self.sequence.steps:
            match step:
                case recorded.Transfer():
                    self.tasks[step.task] = step
                    found += self.transfer(step)
                case recorded.Await(task):
                    column, channel = self.end(self.tasks[task].fifo)
                    found.append(self.wait(column, _WAYS[self.tasks[task].way], channel))
                case recorded.AwaitToken(fifo):
                    control = next(one for one in self.array.controls if one.fifo == fifo)
                    found.append(self.wait(self.placement[control.target][0], "MM2S", control.channel))
        return tuple(found)

    def wait(self, column: int, direction: str, channel: int) -> Wait:
        return Wait(column, SHIM_ROW, DIRECTIONS.index(direction), channel)

    def end(self, fifo: str) -> tuple[int, int]:
        """Column and channel of the shim at a fifo's end, or where a control flow's words leave by."""
        control = next((one for one in self.array.controls if one.name == fifo), None)
        if control is not None:
            return self.placement[control.source][0], CONTROL_CHANNEL
        number = next(k for k, tile in enumerate(self.array.fifo(fifo).ends()) if self.array.tile(tile).kind == "shim")
        end = self.pools.end(fifo, number)
        return self.placement[end.tile][0], end.channel

    def transfer(self, step: recorded.Transfer) -> list[Transfer]:
        """A task is a chain, unless one of its descriptors iterates: then each is a task, and the last one has the token."""
        many = len(step.descriptors) > 1 and any(one.sizes[0] > 1 for one in step.descriptors)
        groups = [(one,) for one in step.descriptors] if many else [step.descriptors]
        column, channel = self.end(step.fifo)
        found = []
        for number, group in enumerate(groups):
            chain = tuple(self.descriptor(step, one) for one in group)
            token = step.token and number == len(groups) - 1
            found.append(Transfer(column, SHIM_ROW, _WAYS[step.way], channel, 0, chain, group[0].sizes[0], token))
        return found

    def descriptor(self, step: recorded.Transfer, one: planned.Descriptor) -> Descriptor:
        """A planned descriptor, elements as words."""
        argument = self.sequence.arguments[self.arguments[step.operand]]
        itemsize = np.dtype(as_format(argument.dtype_name).dtype).itemsize  # type: ignore[union-attr]
        (head, *rest), (step0, *strides) = one.sizes, one.strides
        dims: list[Dim] = [(n, stride * itemsize // WORD) for n, stride in zip(rest, strides, strict=True)]
        run, stride = rest[-1], strides[-1]
        dims[-1] = (run * itemsize // WORD, 1) if stride == 1 else (run, stride * itemsize // WORD)
        mul = FUNCTIONS.index("mul")
        length_by = offset_by = None
        if step.length_by is not None:
            length_by = Update(self.numbers[step.length_by], mul, step.unit * itemsize // LENGTH_UNIT)
        if step.offset_by is not None:
            offset_by = Update(self.numbers[step.offset_by], mul, itemsize)
        walk = merged(dims) or ((1, 1),)
        return Descriptor(
            0,
            math.prod(n for n, _ in walk),
            (0, *(n for n, _ in walk[1:])),
            tuple(stride for _, stride in walk),
            (head, step0 * itemsize // WORD),
            argument=self.arguments[step.operand],
            offset=one.offset * itemsize,
            packet=(self.packets[step.fifo], 0) if step.fifo in self.packets else None,
            length_by=length_by,
            offset_by=offset_by,
        )
