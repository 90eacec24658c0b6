"""The designs of a model's versions, in every way its steps fold: what its cost table has to know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from iron_core.compiled.narrowing import Asked, Narrowed
from iron_core.declare.identity import design_key
from iron_core.devices import Device
from iron_core.errors import IronError
from iron_core.image.folding import fold_steps
from iron_core.image.plan import PlanStep
from iron_core.image.planner import draft
from iron_tuner.cost_table import cost_key
from iron_tuner.ways import Folding

#: Ways of folding a version whose designs are measured.
WAYS = 32


class Recorder:
    """`coresident=` of a compile that decides nothing, and keeps what it was asked about."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []

    def narrowed(self, asked: Asked) -> Narrowed:
        """The version as it is."""
        self.asked.append(asked)
        return Narrowed(asked.traced)


@attrs.define(eq=False)
class ModelDesign:
    """A design of a model. members: what calls give numbers for. chunk: rows of the calls it is in. pinned: tunables that one of its
    operators was given. scales: of members that count more than rows, as numbers, how many a row has."""

    op: Any
    members: frozenset[str]
    chunk: int
    count: int = 0
    pinned: frozenset[str] = frozenset()
    scales: Mapping[str, int] = attrs.field(factory=dict)


def designs(asked: Iterable[Asked], dev: Device) -> tuple[list[ModelDesign], dict[str, str]]:
    """Each design once, those of the most steps first; and, by operator, why one has no array."""
    found: dict[Any, ModelDesign] = {}
    refused: dict[str, str] = {}
    for one in asked:
        chunk = max((buffer.shape[0] for buffer in one.traced.inputs if buffer.shape), default=1)
        for step, count in _steps(one):
            members = frozenset(binding.member for binding in step.bindings)
            try:
                key = (cost_key(step.op, dev), members)
            except IronError as error:
                refused[type(step.op.base).__name__] = str(error)
                continue
            held = found.setdefault(key, ModelDesign(step.op, members, chunk, scales=scales(step)))
            held.count += count
            held.chunk = max(held.chunk, chunk)
            held.pinned |= step.op.pinned
    return sorted(found.values(), key=lambda design: -design.count), refused


def scales(step: PlanStep) -> dict[str, int]:
    """Of each member of a step by how much it grows with its per-call value."""
    return {one.member: max(1, one.expression.scale * one.expression.mul // one.expression.whole) for one in step.bindings}


def _steps(asked: Asked) -> Iterable[tuple[PlanStep, int]]:
    """One step of each operator in any way of folding, and how many of them run without folds."""
    found: dict[Any, tuple[PlanStep, int]] = {}
    for folds in dict.fromkeys([(), *Folding(asked).all(WAYS)[0]]):
        for step in fold_steps(draft(asked.traced, folds).version):
            key = (design_key(step.op), tuple(binding.member for binding in step.bindings))
            held, count = found.get(key, (step, 0))
            found[key] = (held, count + (not folds))
    return found.values()
