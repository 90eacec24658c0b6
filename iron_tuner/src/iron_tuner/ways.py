"""Ways to fold a version, and what it runs in each."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from functools import cached_property
from typing import Any

import attrs

from iron_core.compiled.narrowing import Asked
from iron_core.declare.identity import contract_key, design_key
from iron_core.errors import IronError
from iron_core.graph.fold import Fold, FoldFinder, Joined, choose_folds
from iron_core.graph.traced import TracedStep
from iron_core.image.array_image import ArrayImage, array_image
from iron_core.image.folding import fold_steps
from iron_core.image.plan import Plan, PlanStep
from iron_core.image.planner import Draft, draft

#: Ways that are looked for, one left-out set after another, before single folds are weighed instead.
RUNS = 256


@attrs.frozen(eq=False)
class Run:
    """A step as it runs. identity: what it is made of, with all that is folded into it; equal ones are one design."""

    name: str
    identity: Any
    pinned: frozenset[str]


@attrs.frozen(eq=False, slots=False)
class Way:
    """A version with some folds. runs: its steps in the order they run, but for those that an image inserts."""

    asked: Asked
    folds: tuple[Fold, ...]
    runs: tuple[Run, ...]

    @cached_property
    def _draft(self) -> Draft:
        return draft(self.asked.traced, self.folds)

    @cached_property
    def steps(self) -> dict[str, PlanStep]:
        """Its steps by name. UnsupportedError for a fold that no array has."""
        return {step.name: step for step in fold_steps(self._draft.version)}

    @cached_property
    def image(self) -> ArrayImage:
        """What it becomes on the device. UnsupportedError where that is none."""
        made, asked = self._draft, self.asked
        plan = Plan(made.name, asked.backend.name, asked.dev.name, asked.packaging, (made.version,), made.residents, made.banks)
        return array_image(plan, made.version.signature)


class Folding:
    """The ways of a version. Folds of one kind, as every layer has them, are taken together or not at all: a kind is what it folds where,
    by resolved designs."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self._finder = FoldFinder(asked.traced)
        self._steps = {step.name: step for step in asked.traced.steps}
        self._accepted: dict[Any, bool] = {}
        self._keys: dict[int, Any] = {}
        self.kinds = tuple(dict.fromkeys(map(self.kind, self._finder.folds)))

    def kind(self, fold: Fold) -> Any:
        return (fold.kind, tuple(map(self._key, fold.operators)), fold.at)

    def _key(self, op: Any) -> Any:
        """Of an operator of the trace, which keeps it."""
        if id(op) not in self._keys:
            try:
                self._keys[id(op)] = design_key(op.resolved(self.asked.dev))
            except IronError:
                self._keys[id(op)] = contract_key(op)
        return self._keys[id(op)]

    def taken(self, left_out: frozenset[Any]) -> tuple[Fold, ...]:
        """The folds to take together but for these kinds."""
        accepts = self._accepts
        return tuple(choose_folds(self.asked.traced, lambda f: self.kind(f) not in left_out and accepts(f), self._finder))

    def only(self, kinds: Iterable[Any]) -> tuple[Fold, ...]:
        """Those of these kinds."""
        return self.taken(frozenset(self.kinds) - frozenset(kinds))

    def _accepts(self, fold: Fold) -> bool:
        key = (fold.kind, fold.producer, fold.consumers, fold.at, tuple(map(_parts, fold.joined)))
        if key not in self._accepted:
            self._accepted[key] = self.asked.accepts(fold)
        return self._accepted[key]

    def way(self, folds: Iterable[Fold]) -> Way:
        """The version with these folds: the order of its steps is that of `iron_core.image.folding.fold_steps`."""
        folds = tuple(folds)
        order = {name: number for number, name in enumerate(self._steps)}
        turn = dict(order)
        identity = {name: self._own(step) for name, step in self._steps.items()}
        inside: dict[str, str] = {}
        for fold in folds:
            gone = identity.pop(fold.gone)
            into = fold.consumers if fold.kind == "prologue" else (inside.get(fold.producer, fold.producer),)
            for name, at in zip(into, fold.at, strict=True):
                identity[name] = (*identity[name], (fold.kind, gone, at))
            if fold.kind != "prologue":
                inside[fold.gone] = into[0]
                turn[into[0]] = order[fold.runs_at]
        runs = (Run(name, of, self._steps[name].op.pinned) for name, of in identity.items())
        return Way(self.asked, folds, tuple(sorted(runs, key=lambda run: turn[run.name])))

    def _own(self, step: TracedStep) -> tuple[Any, ...]:
        return (self._key(step.op), frozenset(binding.member for binding in step.bindings))

    def all(self, runs: int = RUNS) -> tuple[list[tuple[Fold, ...]], bool]:
        """Every way, that with most folds first, and whether they are all: leaving out one kind after another, breadth first."""
        found: dict[Any, tuple[Fold, ...]] = {}
        todo, seen = deque([frozenset[Any]()]), {frozenset[Any]()}
        tried = 0
        while todo and tried < runs:
            left_out = todo.popleft()
            tried += 1
            folds = self.taken(left_out)
            found.setdefault(tuple(map(str, folds)), folds)
            for kind in dict.fromkeys(map(self.kind, folds)):
                more = left_out | {kind}
                if more not in seen:
                    seen.add(more)
                    todo.append(more)
        return list(found.values()), not todo


def _parts(joined: Joined) -> tuple[Any, ...]:
    """What a step and all that is folded into it are called."""
    folded = (*joined.prepare, *joined.finish, *((joined.placed,) if joined.placed is not None else ()))
    return (joined.step.name, *((part.step.name, part.at) for part in folded))
