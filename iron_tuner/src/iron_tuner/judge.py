"""May a setting whose output differs from the default's stand in its place? Only within the gates of both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iron_core.declare.tolerance import Deviation
from iron_core.errors import DeviationError
from iron_tuner.records import Accuracy, today
from iron_tuner.settings import Variant


def judge(default: Variant, one: Variant, outputs: Mapping[tuple[int, str], Any], inputs: Mapping[str, Any]) -> Accuracy:
    """Compare what a setting wrote with the reference of the same inputs, by the default's gate and by its own.

    outputs: by (run, operand); the first run is looked at. inputs: by operand, cut to the bounds of its members.
    """
    try:
        both = (gated(default, outputs, inputs), gated(one, outputs, inputs))
    except DeviationError as error:
        return Accuracy(False, str(error), today())
    worst = max(found.ratio for found in both)
    return Accuracy(True, f"{worst:.2f} of the gate", today())


def gated(variant: Variant, outputs: Mapping[tuple[int, str], Any], inputs: Mapping[str, Any]) -> Deviation:
    """How far an output is from exact, by the gate of a setting. DeviationError where it is out, or where nothing was compared."""
    op = variant.resolved
    if variant.members:
        op = op.bounded(**op.limits(variant.members))
    given = [inputs.get(operand.name) for operand in op.inputs]
    blank = {name: op.format(name).zeros(op.shape(name)) for name in op.partial}
    numbers = {name: number for name, number in variant.members.items() if name in op.scratchpads}
    exact = op.reference(*given, **numbers, **blank)
    got = []
    for operand in op.outputs:
        if operand.present(op):
            format, shape = operand.format(op), operand.shape(op)
            array = outputs[0, operand.name]
            got.append(format.tensor(array, shape) if format.packed else array.reshape(shape))
    check = op.array_check if variant.dev.is_npu else op.check
    found = check(tuple(got) if len(got) > 1 else got[0], exact, *given)
    if not found.compared:
        raise DeviationError(f"{type(op).__name__}: nothing was compared.")
    return found

