"""Tuning without a run: a cost table whose figures are the simulator's estimates, and what `JointNarrowing` decides by it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs

from iron_core.array.fit import fit
from iron_core.array.words import number
from iron_core.compiled.narrowing import Asked, Narrowed
from iron_core.errors import IronError
from iron_core.graph.traced import TracedGraph
from iron_core.image.plan import PlanStep
from iron_sim.timing.estimate import estimate
from iron_sim.timing.hardware import Hardware, hardware
from iron_sim.timing.load import load_us, switch_us
from iron_tuner.cost_table import Calibration, CostTable, StepCost, cost_key
from iron_tuner.kinds import NarrowingKinds
from iron_tuner.narrowing import JointNarrowing
from iron_tuner.settings import Settings, Variant
from iron_tuner.ways import Folding

#: What entries of the tables say of themselves.
MODE, WHEN = "estimated", ""


@attrs.define(eq=False)
class Estimated:
    """`coresident=` of a compile. values: the per-call values that steps are estimated at. changed: what to make of the graph before
    anything is decided. folds: the kinds that may be taken. tuning: what was decided, afterwards."""

    values: Mapping[str, int]
    changed: Callable[[TracedGraph], TracedGraph] = lambda traced: traced
    folds: frozenset[str] = frozenset(("finish", "placed", "prologue"))
    kinds: NarrowingKinds = NarrowingKinds(folds=False)  # noqa: RUF009 (frozen)
    tuning: Any = None

    def narrowed(self, asked: Asked) -> Narrowed:
        traced, accepts = self.changed(asked.traced), asked.accepts
        traced = attrs.evolve(traced, steps=tuple(attrs.evolve(step, op=_opened(step.op)) for step in traced.steps))
        asked = attrs.evolve(asked, traced=traced, accepts=lambda fold: fold.kind in self.folds and accepts(fold))
        self.tuning = JointNarrowing(table(asked, self.values), self.kinds).tuning(asked)
        return self.tuning.apply()


@attrs.frozen(eq=False)
class _Setting:
    """A setting with its step, without a dispatch, and its array's load."""

    variant: Variant
    us: float
    load_us: float

    @property
    def size(self) -> tuple[int, ...]:
        return (*self.variant.channels, len(self.variant.built.design.array.cores))


def _opened(op: Any) -> Any:
    """An operator whose profile is where the search begins, and is not held."""
    twin = op.evolve()
    twin.pinned = op.pinned - op.profiled
    return twin


def table(asked: Asked, values: Mapping[str, int]) -> CostTable:
    """Estimates of every design of a version, with the folds that were asked for: at its default, and at the fastest setting of every
    size, which is the channels and cores that it takes."""
    hw, dispatch = hardware(asked.dev), asked.packaging.dispatch
    found = CostTable(asked.dev.name, dispatch)
    loads: dict[str, float] = {}
    for step in _designs(asked):
        members = {binding.member: binding.expression.at(values) for binding in step.bindings}
        for at, one in enumerate(_best(step, asked, members, hw)):
            key = cost_key(one.variant.op, asked.dev)
            us, loads[key] = one.us, one.load_us
            if dispatch == "separate":
                us += hw.chain_run.value
                design = one.variant.built.design
                loads[key] += switch_us(design.array, fit(design), hw)
            found.steps[key] = StepCost(us, us, at == 0, True, MODE, 1, 1, WHEN, 0.0)
    _enter(found, loads, hw)
    return found


def _designs(asked: Asked) -> Iterator[PlanStep]:
    """A step of every design."""
    folding = Folding(asked)
    seen = set()
    for step in folding.way(folding.taken(frozenset()) if asked.fold else ()).steps.values():
        key = cost_key(step.op, asked.dev)
        if key not in seen:
            seen.add(key)
            yield step


def _best(step: PlanStep, asked: Asked, members: Mapping[str, int], hw: Hardware) -> list[_Setting]:
    """The default first, then the fastest of every size."""
    default: _Setting | None = None
    fastest: dict[tuple[int, ...], _Setting] = {}
    for variant in Settings(step.op, asked.dev, asked.backend, step.op.pinned, members):
        # A profile's tile that a chain has no use for is open there, and not in the step by itself, which is what is set.
        if default is not None and any(getattr(variant.resolved, name) != getattr(step.op, name) for name in step.op.pinned):
            continue
        try:
            design, kernels = variant.built
            numbers = {word.name: number(variant.resolved, word, members) for word in design.sequence.words}
            one = _Setting(variant, estimate(design, kernels, None, numbers).us, load_us(design.array, kernels, hw))
        except IronError:
            continue
        default = default or one
        if one.size not in fastest or one.us < fastest[one.size].us:
            fastest[one.size] = one
    assert default is not None, step.name
    return [default, *(one for one in fastest.values() if one is not default)]


def _enter(found: CostTable, loads: Mapping[str, float], hw: Hardware) -> None:
    """What entries take: three designs each beside each, the others beside the first of these."""
    fused = found.dispatch == "fused"
    base = hw.entry_base.value if fused else 0.0
    first, second, third, *others = loads
    for a, b in ((first, second), (second, third), (third, first)):
        dispatch, own = (hw.dispatch.value, dict(base_us=base, reset_us=hw.reset.value)) if fused else (0.0, {})
        found.add_calibration(a, b, Calibration(base + (loads[a] + loads[b]) / 2, dispatch, MODE, 1, 1, WHEN, **own))
    for key in others:
        found.steps[key] = attrs.evolve(found.steps[key], beside=first, pair_us=2 * base + loads[first] + loads[key])
