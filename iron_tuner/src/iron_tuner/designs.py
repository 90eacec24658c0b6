"""The designs of a version, each at every setting whose cost is known."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable
from typing import Any

import attrs

from iron_core.declare.field import AutoField, DTypeField
from iron_core.declare.identity import array_key, canonical, design_key, shown
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

    @property
    def operator(self) -> str:
        """What an image calls its steps' operator."""
        return type(self.default.op.base).__name__


class Designs:
    """Designs by their operators, each looked up in a cost table once."""

    def __init__(self, table: CostTable, dev: Device, backend: Any, kinds: NarrowingKinds, confidence: float, fits: Fits) -> None:
        self.table, self.dev, self.backend, self.kinds, self.confidence, self.fits = table, dev, backend, kinds, confidence, fits
        self.loads = Loads(table)
        #: Keys that were looked for, of designs and of their settings.
        self.asked: set[str] = set()
        self._by_identity: dict[Any, Design] = {}
        self._found: dict[Any, Design] = {}

    def of(self, identity: Any, pinned: frozenset[str], step: Callable[[], PlanStep]) -> Design:
        """The design of a step, asked for where none of its identity was seen. pinned: tunables that are held, its own and those of
        other steps of the design."""
        at = (identity, pinned)
        if at not in self._by_identity:
            op, members = step().op, [binding.member for binding in step().bindings]
            key = (design_key(op.resolved(self.dev)), frozenset(members), pinned)
            if key not in self._found:
                self._found[key] = self._design(op, members, pinned)
            self._by_identity[at] = self._found[key]
        return self._by_identity[at]

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
        for at, found in (self._candidates(settings, op, key, cost) if self.kinds.widths else {}).items():
            found.sort(key=lambda one: one[2])
            fitting = (self._fitting(settings, tunables, own, cost) for tunables, own, _ in found)
            best = next((one for one in fitting if one is not None), None)
            if best is not None and (at not in options or (best.us, best.own_us) < (options[at].us, options[at].own_us)):
                options[at] = best
        return Design(said, key, default, options)

    def _candidates(self, settings: Settings, op: Any, key: str, default: StepCost) -> dict[Any, list[tuple[dict[str, Any], str, float]]]:
        """By array key, the settings that may stand for the default: tunables, cost key and price. They were measured and are accurate."""
        found: dict[Any, list[tuple[dict[str, Any], str, float]]] = {}
        for tunables in self._settings(settings, key):
            try:
                resolved = op.with_tunables(**tunables).resolved(self.dev)
            except IronError:
                continue
            own = cost_key(resolved, self.dev)
            cost = self._cost(own)
            if cost is not None and is_candidate(cost, default) and own in self.loads:
                found.setdefault(array_key(resolved), []).append((tunables, own, price_us(cost, default, self.confidence)))
        return found

    def _settings(self, settings: Settings, key: str) -> Iterable[dict[str, Any]]:
        """Those that the table says it has of a design; where it says nothing, all that there could be."""
        told = [dict(cost.tunables) for cost in self.table.steps.values() if cost.setting_of == key]
        if told:
            return [tunables for tunables in told if tunables.keys() <= settings.axes.keys()]
        return (dict(zip(settings.axes, values, strict=True)) for values in itertools.product(*settings.axes.values()))

    def _fitting(self, settings: Settings, tunables: dict[str, Any], key: str, default: StepCost) -> Option | None:
        """A setting, if its design fits the device."""
        variant = settings.at(tunables)
        try:
            if variant is None or self.fits.refused(variant):
                return None
        except IronError:
            return None
        return self._option(variant, key, self.table.steps[key], default)

    def _option(self, variant: Variant, key: str, cost: StepCost, default: StepCost) -> Option:
        price = price_us(cost, default, self.confidence)
        return Option(variant, key, price, expected_us(cost), self.loads[key], is_exact(cost))
