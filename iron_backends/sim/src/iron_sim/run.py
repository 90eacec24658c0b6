"""One operator's array on plain numpy arrays: what tests and `nox -s sim` call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from iron_core.array.build import build
from iron_core.array.fit import fit
from iron_core.array.words import number
from iron_core.declare.link import offset_member
from iron_core.devices import Device, device
from iron_core.errors import CallError
from iron_core.graph.members import checks
from iron_core.graph.traced import PerCallValue
from iron_sim.machine import Machine, Stats
from iron_sim.regions import regions_of
from iron_sim.trace import Trace


def _check(op: Any, tensors: Mapping[str, Any], members: Mapping[str, int]) -> None:
    """CallError for a name that the operator does not have, a tensor of other bytes than its operand, or a member that is no
    whole number; BoundsError for one that reaches out of its operand."""
    name = type(op.base).__name__
    placed = dict(op.placed)
    legal = (*type(op.base).extents, *type(op.base).scratchpads, *map(offset_member, placed))
    for what, given, known in (("operand", tensors, op.operands), ("per-call member", members, legal)):
        for one in given:
            if one not in known:
                raise CallError(f"{name} has no {what} {one}; it has {', '.join(known) or 'none'}.")
    for one, given in tensors.items():
        shape = (placed[one],) if one in placed else op.shape(one)
        want, got = op.format(one).nbytes(shape), getattr(given, "nbytes", None)
        if given is not None and got != want:
            shown = f"{given.dtype} of shape {given.shape}" if isinstance(given, np.ndarray) else type(given).__name__
            raise CallError(f"{name}: {one} is {op.format(one)} of shape {shape}, {want} bytes; got {shown}.")
    numbers = {one: PerCallValue(one, "scratchpad", "int32").number(n) for one, n in members.items()}
    for check in checks(op, numbers):
        check.verify(numbers)


def simulate(
    op: Any,
    dev: str | Device,
    tensors: Mapping[str, Any],
    members: Mapping[str, int] | None = None,
    *,
    trace: str | None = None,
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], Stats]:
    """Run an operator's design once. tensors: operand name -> array (outputs may be given: what they hold before).

    members: numbers of bound members (extents, offsets). Returns per written operand its numbers and its poison mask, both
    in its shape, and what was moved. trace: a file for Perfetto.
    """
    dev = device(dev)
    op = op.resolved(dev)
    members = dict(members or {})
    _check(op, tensors, members)
    design, kernels = build(op, dev, members)
    machine = Machine(design.array, kernels, fit(design), follow=trace is not None)
    regions = regions_of(design, tensors)
    numbers = {word.name: number(op, word, members) for word in design.sequence.words}
    stats = machine.run(design.sequence, regions, numbers)
    if trace is not None:
        recorded = Trace(trace)
        recorded.add(type(op).__name__, design, kernels, numbers, fit(design), machine.followed())
        recorded.write()
    outputs, masks = {}, {}
    for operand in op.outputs:
        if operand.present(op):
            region = regions[operand.name]
            shape = operand.shape(op)
            outputs[operand.name] = region.data.reshape(shape) if region.data.size == int(np.prod(shape)) else region.data
            assert region.mask is not None
            masks[operand.name] = region.mask.reshape(outputs[operand.name].shape)
    return outputs, masks, stats
