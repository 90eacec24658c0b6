"""Folds on arrays: a plan's folded steps become links of the step they fold into."""

from __future__ import annotations

from typing import Any

import attrs

from iron_core.array.build import build
from iron_core.array.fit import fit
from iron_core.declare.chained import fold as folded
from iron_core.declare.chained import prefold
from iron_core.declare.link import riding
from iron_core.devices import Device
from iron_core.errors import IronError
from iron_core.graph.fold import Fold
from iron_core.image.plan import PlanStep, VersionPlan


def array_accepts(fold: Fold, dev: Device) -> bool:
    """Can the arrays of a device take this fold, by itself?"""
    producer, *consumers = fold.operators
    try:
        for consumer, at in zip(consumers, fold.at, strict=True):
            fit(build(_joined(fold, producer, consumer, at), dev).design)
    except IronError:
        return False
    return True


def fold_steps(version: VersionPlan, dev: Device) -> tuple[PlanStep, ...]:
    """The steps as they run: a folded step is part of another, at the place its fold names.

    Folds that the arrays take one by one and not together are left out, the later one; its steps run as they were.
    """
    order = {step.name: i for i, step in enumerate(version.steps)}
    steps = {step.name: step for step in version.steps}
    place = dict(order)
    inside: dict[str, str] = {}
    for fold in version.folds:
        producer = inside.get(fold.producer, fold.producer)
        if fold.kind == "finish":
            joined = _finish(steps[producer], steps[fold.consumers[0]], fold, dev)
            if joined is not None:
                steps[producer] = joined
                place[producer] = order[fold.runs_at]
                inside[fold.consumers[0]] = producer
                del steps[fold.consumers[0]]
        elif fold.kind == "prologue":
            names = [inside.get(name, name) for name in fold.consumers]
            found = [_prologue(steps[producer], steps[name], fold, at, dev) for name, at in zip(names, fold.at, strict=True)]
            if all(found):
                steps.update(zip(names, found, strict=True))  # type: ignore[arg-type]
                del steps[producer]
    return tuple(sorted(steps.values(), key=lambda step: place[step.name]))


def _tile_input(op: Any, made: Any) -> str:
    """The input of a prologue's step that is its tile: the first one of the size and format of what it makes."""
    for operand in op.inputs:
        if operand.present(op):
            bound = getattr(op, operand.name)
            if bound.size == made.size and bound.format == made.format:
                return str(operand.name)
    raise ValueError(f"{op!r} has no input like its output")


def _made(op: Any) -> Any:
    return getattr(op, next(o.name for o in op.outputs if o.present(op)))


def _joined(fold: Fold, producer: Any, consumer: Any, at: str) -> Any:
    """One operator of two. Unresolvable where the array applies no such step."""
    if fold.kind == "finish":
        return folded(producer, consumer, at)
    if fold.kind == "prologue":
        return prefold(consumer, producer, _tile_input(producer, _made(producer)))
    raise IronError(f"{fold}: arrays do not place copies")


def _others(step: PlanStep, tile: str) -> list[Any]:
    """Where a step's inputs besides its tile are, in declaration order."""
    op = step.op
    return [step.operands[o.name] for o in op.inputs if o.present(op) and o.name != tile]


def _finish(producer: PlanStep, consumer: PlanStep, fold: Fold, dev: Device) -> PlanStep | None:
    at = fold.at[0]
    op = _buildable(fold, producer, consumer.op, at, dev)
    if op is None:
        return None
    source = next(o.name for o in producer.op.outputs if o.present(producer.op))
    result = next(o.name for o in consumer.op.outputs if o.present(consumer.op))
    into = consumer.operands[result]
    operands = dict(producer.operands)
    operands[source] = attrs.evolve(into, shape=producer.operands[source].shape, bounds=producer.operands[source].bounds)
    names = riding(op, "finish", len(op.finish) - 1)
    operands.update(zip(names, _others(consumer, at), strict=True))
    return attrs.evolve(producer, op=op, operands=operands)


def _prologue(producer: PlanStep, consumer: PlanStep, fold: Fold, at: str, dev: Device) -> PlanStep | None:
    tile = _tile_input(producer.op, _made(producer.op))
    op = _buildable(fold, consumer, producer.op, at, dev)
    if op is None:
        return None
    operands = dict(consumer.operands)
    # What earlier links ride has moved one step back: their names count from the front.
    for step in range(len(op.prepare) - 1, 0, -1):
        for new, old in zip(riding(op, "prepare", step), riding(consumer.op, "prepare", step - 1), strict=True):
            operands[new] = operands.pop(old)
    read = producer.operands[tile]
    operands[at] = attrs.evolve(read, shape=consumer.operands[at].shape, bounds=consumer.operands[at].bounds)
    operands.update(zip(riding(op, "prepare", 0), _others(producer, tile), strict=True))
    return attrs.evolve(consumer, op=op, operands=operands)


def _buildable(fold: Fold, host: PlanStep, guest: Any, at: str, dev: Device) -> Any:
    """The joined operator, or None where no array takes it with this step's bindings."""
    try:
        joined = _joined(fold, host.op, guest, at) if fold.kind == "finish" else _joined(fold, guest, host.op, at)
        fit(build(joined, dev, (binding.member for binding in host.bindings)).design)
    except IronError:
        return None
    return joined
