"""`Tuning`: what a narrowing decided of a version, and what its model says of it."""

from __future__ import annotations

from typing import Any

import attrs

from iron_core.compiled.narrowing import Asked, Narrowed
from iron_core.errors import printable
from iron_core.graph.fold import Fold
from iron_tuner.cost_table import CostTable
from iron_tuner.settings import Variant

#: Steps that the report names of a design.
_NAMED = 3


@attrs.frozen(eq=False)
class Changed:
    """A design that leaves its default. tunables: those of the default that change, each with what it was and what it is. exact: does it
    make the default's bits? steps: those of the design."""

    design: str
    variant: Variant
    tunables: tuple[tuple[str, Any, Any], ...]
    exact: bool
    steps: tuple[str, ...]


@attrs.frozen(eq=False)
class Group:
    """Arrays that share a configuration. entries: how often it is entered; alone: how often they would be, each by itself. costs: of each
    array the cost key of the design that it is set by."""

    arrays: tuple[str, ...]
    keys: tuple[tuple[Any, ...], ...]
    entries: int
    alone: int
    costs: tuple[str, ...] = ()


@attrs.frozen(eq=False)
class Tuning:
    """What was decided, and the model's times in microseconds, which leave out designs without a cost.

    asked, table: what it was decided of, and by. chosen: designs that leave their default. groups: packs. taken, usual: the folds as
    decided, and as they were; folds: the kinds of the former, and how often each. devices: configurations there are; configures: how
    often one is entered, or in a chain loaded. predicted_us, baseline_us: of the version as decided, and as it was. gap: as a part of
    predicted_us, the most that another choice could save in the same model; all_folds: of all ways to fold, not only of these folds.
    unmeasured: designs that keep their default, alone, and why. unpriced: ways of folding that the table does not tell the time of.
    stale: what the table has of designs that have changed since.
    """

    asked: Asked
    table: CostTable
    chosen: tuple[Changed, ...]
    groups: tuple[Group, ...]
    taken: tuple[Fold, ...]
    usual: tuple[Fold, ...]
    folds: tuple[str, ...]
    devices: int
    configures: int
    baseline_configures: int
    predicted_us: float
    baseline_us: float
    gap: float
    all_folds: bool
    unmeasured: tuple[tuple[str, str], ...]
    unpriced: tuple[str, ...]
    stale: tuple[str, ...]

    @property
    def inexact(self) -> tuple[str, ...]:
        """Changed designs that are within the default's gates and do not make its bits."""
        return tuple(one.design for one in self.chosen if not one.exact)

    def apply(self) -> Narrowed:
        """The version with its operators at what was chosen, its folds and packs. As often as one likes: nothing is changed in place."""
        tunables = {name: one.variant.tunables for one in self.chosen for name in one.steps}
        made: dict[Any, Any] = {}
        ops = {}
        for step in self.asked.traced.steps:
            own = tunables.get(step.name)
            # Steps that share an operator share what it becomes.
            ops[step.name] = step.op if own is None else made.setdefault((id(step.op), id(own)), step.op.with_tunables(**own))
        steps = tuple(attrs.evolve(step, op=ops[step.name]) for step in self.asked.traced.steps)
        folds = tuple(attrs.evolve(f, operators=tuple(ops[name] for name in (f.producer, *f.consumers))) for f in self.taken)
        packs = tuple(group.keys for group in self.groups)
        return Narrowed(attrs.evolve(self.asked.traced, steps=steps), folds, packs, tuple(self.report().splitlines()), self)

    def report(self) -> str:
        """Folds, changed designs, packs, the model's times, and what is not in them."""
        lines = [f"fold {fold}" for fold in self.folds]
        for one in self.chosen:
            moved = ", ".join(f"{name} {was} -> {now}" for name, was, now in one.tunables)
            lines.append(f"{one.design}: {moved}{'' if one.exact else ' (within its gates, not exact)'}; {_steps(one.steps)}")
        for group in self.groups:
            lines.append(f"pack of {', '.join(group.arrays)}: {_many(group.entries, 'entry', 'entries')} instead of {group.alone}")
        entered = ("entry", "entries") if self.table.dispatch == "fused" else ("switch", "switches")
        lines.append(
            f"model: {self.predicted_us:.1f} us with {_many(self.configures, *entered)} of "
            f"{_many(self.devices, 'configuration', 'configurations')}, instead of "
            f"{self.baseline_us:.1f} us with {self.baseline_configures}; {self._proof()}"
        )
        lines += [f"not in the model: {what}: {why}" for what, why in self.unmeasured]
        lines += [f"not priced: {what}" for what in self.unpriced]
        lines += self.stale
        lines += [f"left out of the cost table: {what}" for what in self.table.dropped]
        return "\n".join(map(printable, lines))  # names and dates are a file's

    def _proof(self) -> str:
        folds = "" if self.all_folds else " for these folds, which were weighed one by one"
        if self.gap <= 1e-9:
            return f"nothing is faster by the table{folds}"
        return f"at most {100 * self.gap:.2f} % could still be saved by the table{folds}: the linear relaxation's dual proves it"


def _many(count: int, one: str, more: str) -> str:
    return f"{count} {one if count == 1 else more}"


def _steps(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:_NAMED])
    return f"{len(names)} steps ({shown}{', ...' if len(names) > _NAMED else ''})" if len(names) > 1 else f"step {shown}"
