"""Folds on arrays: a plan's folded steps become links of the step they fold into, a copy the place it writes to."""

from __future__ import annotations

from typing import Any, NamedTuple

import attrs

from iron_core.array.build import build
from iron_core.array.fit import fit
from iron_core.declare.affine import Affine
from iron_core.declare.chained import fold as folded
from iron_core.declare.chained import place
from iron_core.declare.chained import prefold as prefolded
from iron_core.declare.link import offset_member, riding
from iron_core.devices import WORD, Device
from iron_core.errors import IronError, Unresolvable, UnsupportedError
from iron_core.graph.fold import Fold, Joined
from iron_core.graph.traced import Binding, TracedStep
from iron_core.image.plan import PlanStep, VersionPlan


def array_refusal(fold: Fold, dev: Device) -> str | None:
    """Why the arrays of a device do not take what a fold makes; None where they do."""
    return next(filter(None, (_refusal(joined, dev) for joined in fold.joined)), None)


def _refusal(joined: Joined, dev: Device) -> str | None:
    step = joined.step
    members = [binding.member for binding in step.bindings]
    try:
        op = step.op
        for part in joined.finish:
            op = folded(op, part.step.op, part.at)
        for part in reversed(joined.prepare):
            op = prefolded(op, part.step.op, part.at)
        if joined.placed is not None:
            run = _run(joined.placed.step, joined.placed.at)
            if run.refusal:
                return run.refusal
            op, moved = _place(op, run)
            members += moved
        fit(build(op, dev, members).design)
    except IronError as error:
        return str(error)
    where = [operand.name for operand in op.base.inputs if operand.prepare]
    other = next((part.operand for part in joined.prepare if part.operand not in where), None)
    if other is not None:
        return f"{type(op.base).__name__}: a step in front of {other}. Legal on its array: in front of {' or '.join(where)}."
    return None


class _Run(NamedTuple):
    """Where a copy that reads its input in order writes: `elements` of its operand from `start` on, moved per call by an
    expression. refusal: why no array does it by writing there."""

    operand: str
    start: int
    elements: int
    moved: Affine | None
    refusal: str | None


def _run(copy: TracedStep | PlanStep, at: str) -> _Run:
    op = copy.op
    ((name, view),) = ((name, view) for name, view in op.accept_views.items() if name != at)
    read, into, pattern = getattr(op, at), getattr(op, name), getattr(op, view.pattern)
    start = 0 if pattern is None else pattern.offset
    moved = next((binding.expression for binding in copy.bindings if binding.member == view.offset), None)
    refusal = None
    if read.format != into.format:
        refusal = f"{type(op).__name__} makes {into.format} of {read.format}; an array writes what it made."
    elif into.format.packed or start * into.format.dtype.itemsize % WORD:
        refusal = f"{type(op).__name__} writes {into.format} from element {start} on; an array writes whole {WORD}-byte words."
    return _Run(name, start, into.size - start, moved, refusal and f"{refusal} Legal: the copy by itself.")


def _place(op: Any, run: _Run) -> tuple[Any, tuple[str, ...]]:
    """The operator with its result where the copy puts it, and the per-call members that this brings."""
    if run.moved is None:
        return op, ()
    op = place(op, run.elements)
    return op, tuple(offset_member(operand) for operand, _ in op.placed)


def fold_steps(version: VersionPlan) -> tuple[PlanStep, ...]:
    """The steps as they run: a folded step is part of another, at the place its fold names. UnsupportedError for a fold that
    no array has."""
    order = {step.name: i for i, step in enumerate(version.steps)}
    steps = {step.name: step for step in version.steps}
    turn = dict(order)
    inside: dict[str, str] = {}
    for fold in version.folds:
        gone = steps.pop(fold.gone)
        try:
            if fold.kind == "prologue":
                for name, at in zip(fold.consumers, fold.at, strict=True):
                    steps[name] = _prologue(gone, steps[name], at)
            else:
                producer = inside[fold.gone] = inside.get(fold.producer, fold.producer)
                join = _finish if fold.kind == "finish" else _placed
                steps[producer] = join(steps[producer], gone, fold.at[0])
                turn[producer] = order[fold.runs_at]
        except Unresolvable as error:  # of a backend that takes what arrays do not
            raise UnsupportedError(f"fold of {fold}: {error}") from error
    return tuple(sorted(steps.values(), key=lambda step: turn[step.name]))


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


def _others(step: PlanStep, tile: str) -> list[Any]:
    """Where a step's inputs besides its tile are, in declaration order."""
    op = step.op
    return [step.operands[o.name] for o in op.inputs if o.present(op) and o.name != tile]


def _placed(producer: PlanStep, copy: PlanStep, at: str) -> PlanStep:
    run, made = _run(copy, at), _made(producer.op).name
    op, members = _place(producer.op, run)
    into, shape = copy.operands[run.operand], producer.operands[made].shape if run.moved is None else (run.elements,)
    ref = attrs.evolve(into, offset=into.offset + into.format.offset(run.start, into.shape), shape=shape, bounds=())
    bindings = tuple(Binding(member, run.moved) for member in members if run.moved is not None)
    return attrs.evolve(producer, op=op, operands={**producer.operands, made: ref}, bindings=(*producer.bindings, *bindings))


def _finish(producer: PlanStep, consumer: PlanStep, at: str) -> PlanStep:
    op = folded(producer.op, consumer.op, at)
    source, result = _made(producer.op).name, _made(consumer.op).name
    into = consumer.operands[result]
    operands = dict(producer.operands)
    operands[source] = attrs.evolve(into, shape=producer.operands[source].shape, bounds=producer.operands[source].bounds)
    names = riding(op, "finish", len(op.finish) - 1) if op.finish else ()  # a step in fields of its own brings no operand
    operands.update(zip(names, _others(consumer, at), strict=True))
    return attrs.evolve(producer, op=op, operands=operands)


def _prologue(producer: PlanStep, consumer: PlanStep, at: str) -> PlanStep:
    tile = _tile_input(producer.op, _made(producer.op))
    op = prefolded(consumer.op, producer.op, tile)
    operands = dict(consumer.operands)
    # What earlier links ride has moved one step back: their names count from the front.
    for step in range(len(op.prepare) - 1, 0, -1):
        for new, old in zip(riding(op, "prepare", step), riding(consumer.op, "prepare", step - 1), strict=True):
            operands[new] = operands.pop(old)
    read = producer.operands[tile]
    operands[at] = attrs.evolve(read, shape=consumer.operands[at].shape, bounds=consumer.operands[at].bounds)
    operands.update(zip(riding(op, "prepare", 0), _others(producer, tile), strict=True))
    return attrs.evolve(consumer, op=op, operands=operands)
