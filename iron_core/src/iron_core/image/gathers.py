"""Gathers of a full ELF: all its control words are there before it runs, as nobody can write any while it does but itself.

Of ids that the caller gives the host makes them. Ids that the graph makes are made addresses by a step `GatherWords` in front of
the gather; the host wrote the words around them, and the table's address.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs
import numpy as np

from iron_core.array.gather import Gather
from iron_core.declare.formats import as_format
from iron_core.devices import Device
from iron_core.image.array_step import ArrayStep, array_step
from iron_core.image.plan import BufferRef, PlanStep
from iron_core.plugins.registry import registry

#: What makes addresses of ids.
GATHER_WORDS = "iron-ops-aie:GatherWords"
#: Words of an address.
ADDRESS_WORDS = 2


@attrs.frozen
class Control:
    """A tensor of control words. `table`: what is gathered from. ids: the caller's, before every call they become the words;
    None where the device writes the addresses, and the host the others, once."""

    gather: Gather
    table: BufferRef
    ids: BufferRef | None = None


@attrs.frozen
class ControlTensors:
    """What the host writes beside a plan's own buffers: tensors of control words, in space "control", and in space "address"
    those that hold a table's address, its low word first."""

    controls: tuple[Control, ...] = ()
    addresses: tuple[BufferRef, ...] = ()


def with_control_words(steps: Iterable[ArrayStep], dev: Device) -> tuple[tuple[ArrayStep, ...], ControlTensors]:
    """The steps with tensors of control words in place of ids, and what makes these where the caller does not give them."""
    made: list[ArrayStep] = []
    controls: list[Control] = []
    addresses: list[BufferRef] = []
    for step in steps:
        for argument in step.design.sequence.arguments:
            if argument.control is None:
                continue
            gather, ids, table = argument.control, step.operands[argument.operand], step.operands[argument.control.table]
            words = _tensor("control", len(controls), gather.words)
            step = attrs.evolve(step, operands={**step.operands, argument.operand: words})
            if ids.space == "input":
                controls.append(Control(gather, table, ids))
                continue
            controls.append(Control(gather, table))
            operands = {"ids": ids, "address": _tensor("address", len(addresses), ADDRESS_WORDS), "words": words}
            addresses.append(table)
            made.append(array_step(PlanStep(f"{step.name}_words", _operator(gather), operands, category=step.category), dev))
        made.append(step)
    return tuple(made), ControlTensors(tuple(controls), tuple(addresses))


def _operator(gather: Gather) -> object:
    fields = {name: getattr(gather, name) for name in ("table_rows", "rows", "row_bytes", "feeds")}
    return registry().load("operators", GATHER_WORDS)(**fields)


def _tensor(space: str, index: int, words: int) -> BufferRef:
    return BufferRef(space, index, 0, (words,), as_format(np.uint32))
