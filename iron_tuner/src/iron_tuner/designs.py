"""The designs of a version, each at every setting whose cost is known."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import attrs

from iron_core.declare.field import AutoField, DTypeField
from iron_core.declare.identity import canonical, design_key, shown
from iron_core.declare.link import CHAINS
from iron_core.devices import Device
from iron_core.errors import IronError
from iron_core.image.plan import PlanStep
from iron_tuner.cost_table import CostTable, StepCost, cost_key
from iron_tuner.errors import CostError
from iron_tuner.fits import Fits
from iron_tuner.kinds import NarrowingKinds
from iron_tuner.model import Loads, expected_us, is_candidate, is_exact, price_us
from iron_tuner.settings import Settings, Variant


def short(op: Any) -> str:
    """An operator as people tell it from others: its class, the params that are not at their defaults, and what is folded into it."""
    said = []
    for name, field in op.fields.items():
        value = getattr(op, name)
        if not isinstance(field, AutoField | DTypeField) and (field.required or (not field.computed and canonical(value) != field.default)):
            said.append(f"{name}={shown(value)}")
    chains = [f"{chain} {', '.join(type(link.op).__name__ for link in getattr(op, chain))}" for chain in CHAINS if getattr(op, chain)]
    chains += ["its result placed"] if op.placed else []
    return f"{type(op.base).__name__}({', '.join(said)}){' with ' if chains else ''}{' and '.join(chains)}"


@attrs.frozen(eq=False)
class Option:
    """A design at one setting. us: what a step of it counts as; own_us: what one takes; load_us: what an entry pays for its array."""

    variant: Variant
    key: str
    us: float
    own_us: float
    load_us: float
    exact: bool


@attrs.frozen(eq=False)
class Design:
    """A design as its steps have it: the default's array, and per array key the cheapest setting on that array. why: why nothing is known
    of its cost; it then has no options."""

    label: str
    key: str
    default: Variant
    options: dict[Any, Option]
    why: str = ""

    @property
    def known(self) -> bool:
        return not self.why


class Designs:
    """Designs by their operators, each looked up in a cost table once."""

    def __init__(self, table: CostTable, dev: Device, backend: Any, kinds: NarrowingKinds, confidence: float, fits: Fits) -> None:
        self.table, self.dev, self.backend, self.kinds, self.confidence, self.fits = table, dev, backend, kinds, confidence, fits
        self.loads = Loads(table)
        #: Keys that were looked for, of designs and of their settings.
        self.asked: set[str] = set()
        self._found: dict[Any, Design] = {}

    def identity(self, step: PlanStep) -> Any:
        """What makes a step's design: equal ones are one."""
        return design_key(step.op.resolved(self.dev)), frozenset(binding.member for binding in step.bindings)

    def of(self, step: PlanStep, pinned: frozenset[str]) -> Design:
        """The design of a step. pinned: tunables that are held, its own and those of other steps of the design."""
        at = (self.identity(step), pinned)
        if at not in self._found:
            self._found[at] = self._design(step.op, [binding.member for binding in step.bindings], pinned)
        return self._found[at]

    def _cost(self, key: str) -> StepCost | None:
        self.asked.add(key)
        return self.table.steps.get(key)

    def _design(self, op: Any, members: Collection[str], pinned: Collection[str]) -> Design:
        settings = Settings(op, self.dev, self.backend, pinned, dict.fromkeys(members, 0))
        default, key = settings.default, cost_key(op, self.dev)
        said = short(op)
        cost = self._cost(key)
        if cost is None:
            return Design(said, key, default, {}, "it is not in the cost table")
        try:
            options = {default.array_key: self._option(default, key, cost, cost)}
        except CostError as error:
            return Design(said, key, default, {}, str(error))
        for variant in settings if self.kinds.widths else ():
            other = None if variant is default else self._other(variant, cost)
            held = options.get(variant.array_key)
            if other is not None and (held is None or (other.us, other.own_us) < (held.us, held.own_us)):
                options[variant.array_key] = other
        return Design(said, key, default, options)

    def _option(self, variant: Variant, key: str, cost: StepCost, default: StepCost) -> Option:
        price = price_us(cost, default, self.confidence)
        return Option(variant, key, price, expected_us(cost), self.loads[key], is_exact(cost))

    def _other(self, variant: Variant, default: StepCost) -> Option | None:
        """Another setting, where it may stand for the default: it was measured, is accurate, and fits."""
        key = cost_key(variant.op, self.dev)
        cost = self._cost(key)
        if cost is None or not is_candidate(cost, default) or key not in self.loads:
            return None
        try:
            return None if self.fits.refused(variant) else self._option(variant, key, cost, default)
        except IronError:
            return None
