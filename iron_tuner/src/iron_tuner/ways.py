"""Ways to fold a version, and what it runs in each."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

import attrs

from iron_core.compiled.narrowing import Asked
from iron_core.declare.identity import contract_key, design_key
from iron_core.errors import IronError
from iron_core.graph.fold import Fold, Joined, choose_folds, find_folds
from iron_core.image.array_image import ArrayImage, array_image
from iron_core.image.folding import fold_steps
from iron_core.image.plan import Plan, PlanStep
from iron_core.image.planner import draft

#: Ways that are looked for, one left-out set after another, before single folds are weighed instead.
RUNS = 256


@attrs.frozen(eq=False)
class Way:
    """A version with some folds. steps: as they run, by name, those that an image inserts not among them."""

    folds: tuple[Fold, ...]
    steps: dict[str, PlanStep]
    image: ArrayImage


def way(asked: Asked, folds: Iterable[Fold]) -> Way:
    """What a version runs with these folds. UnsupportedError where it is no image."""
    folds = tuple(folds)
    made = draft(asked.traced, folds)
    plan = Plan(made.name, asked.backend.name, asked.dev.name, asked.packaging, (made.version,), made.residents, made.banks)
    steps = {step.name: step for step in fold_steps(made.version)}
    return Way(folds, steps, array_image(plan, made.version.signature))


class Folding:
    """The ways of a version. Folds of one kind, as every layer has them, are taken together or not at all: a kind is what it folds where,
    by resolved designs."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self._accepted: dict[Any, bool] = {}
        self.kinds = tuple(dict.fromkeys(map(self.kind, find_folds(asked.traced))))

    def kind(self, fold: Fold) -> Any:
        return (fold.kind, tuple(map(self._key, fold.operators)), fold.at)

    def _key(self, op: Any) -> Any:
        try:
            return design_key(op.resolved(self.asked.dev))
        except IronError:
            return contract_key(op)

    def taken(self, left_out: frozenset[Any]) -> tuple[Fold, ...]:
        """The folds to take together but for these kinds."""
        return tuple(choose_folds(self.asked.traced, lambda fold: self.kind(fold) not in left_out and self._accepts(fold)))

    def only(self, kinds: Iterable[Any]) -> tuple[Fold, ...]:
        """Those of these kinds."""
        return self.taken(frozenset(self.kinds) - frozenset(kinds))

    def _accepts(self, fold: Fold) -> bool:
        key = (fold.kind, fold.producer, fold.consumers, fold.at, tuple(map(_parts, fold.joined)))
        if key not in self._accepted:
            self._accepted[key] = self.asked.accepts(fold)
        return self._accepted[key]

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
