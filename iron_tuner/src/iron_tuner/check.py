"""`check_model`: a tuned version and the same untuned, each measured beside what the model says of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from iron_core.backends.measuring import Measured, Run, RunList, Timing, measuring
from iron_core.compiled.narrowing import Narrowed
from iron_core.errors import CallError
from iron_core.graph.traced import Binding
from iron_core.image.plan import PlanStep
from iron_tuner.designs import Designs
from iron_tuner.errors import CostError
from iron_tuner.fits import Fits
from iron_tuner.instance import Instance, sketch
from iron_tuner.kinds import NarrowingKinds
from iron_tuner.problem import Block
from iron_tuner.tuning import Tuning
from iron_tuner.ways import Folding, Way


@attrs.frozen
class Beside:
    """What the model says and what a run took, in microseconds. noise_us: the standard error of the latter, None where it is not known."""

    predicted_us: float
    measured_us: float
    noise_us: float | None

    @property
    def ratio(self) -> float:
        """Measured over predicted."""
        return self.measured_us / self.predicted_us


@attrs.frozen
class Checked:
    """Both versions. The steps that an image inserts are in neither."""

    untuned: Beside
    tuned: Beside

    def report(self) -> str:
        """Both, and the gain by each."""
        lines = [
            f"{name:<8} predicted {one.predicted_us:10.1f} us  measured {one.measured_us:10.1f} us  ratio {one.ratio:.3f}"
            for name, one in (("untuned", self.untuned), ("tuned", self.tuned))
        ]
        predicted, measured = (
            (1 - getattr(self.tuned, name) / getattr(self.untuned, name)) * 100 for name in ("predicted_us", "measured_us")
        )
        return "\n".join([*lines, f"{'gain':<8} predicted {predicted:8.1f} %    measured {measured:8.1f} %"])


def check_model(version: Any, timing: Timing | None = None, values: Mapping[str, int] | None = None) -> Checked:
    """Measure a version that a `JointNarrowing` decided of, on its backend, and the same as it was.

    values: the call's, by name; those left out are 0, and bounds then as far as they go. CallError for a version that nobody tuned;
    UnsupportedError for a backend that measures nothing; CostError where a design is in no model, or a run was disturbed.
    """
    tuning = version.tuning
    if not isinstance(tuning, Tuning):
        raise CallError("check_model: this version was not tuned. Legal: one compiled with coresident=JointNarrowing(table).")
    asked = tuning.asked
    backend = measuring(asked.backend)
    lists, predicted = [], []
    for name, one in (("untuned", Narrowed(asked.traced, tuning.usual)), ("tuned", tuning.apply())):
        way = Folding(attrs.evolve(asked, traced=one.traced)).way(one.folds)
        designs = Designs(tuning.table, asked.dev, asked.backend, NarrowingKinds(False, False, False), 0.0, Fits())
        found = sketch(way, designs)
        if found.missing:
            what, why = found.missing[0]
            raise CostError(f"check_model: {what} is not in the model ({why}); measure it first.")
        blocks = _blocks(found, one)
        predicted.append(found.dispatch_us + found.problem.total_us(blocks))
        lists.append(_listed(name, way, found, blocks, tuning.table.dispatch, values or {}))
    measured = backend.measure(lists, asked.dev, timing or Timing())
    disturbed = next((one.disturbed for one in measured if one.disturbed), "")
    if disturbed:
        raise CostError(f"check_model: {disturbed}; measure again when it is over.")
    return Checked(*(_beside(us, one) for us, one in zip(predicted, measured, strict=True)))


def _beside(predicted: float, measured: Measured) -> Beside:
    return Beside(predicted, measured.us, measured.noise_us)


def _blocks(found: Instance, narrowed: Narrowed) -> list[Block]:
    """Every array at what is now its default, those of a pack together."""
    places: dict[Any, int] = {key: number for number, pack in enumerate(narrowed.packs) for key in pack}
    blocks: dict[Any, list[tuple[int, int]]] = {}
    for unit, array in enumerate(found.arrays):
        blocks.setdefault(places.get(array.choices[0].array_key, array), []).append((unit, 0))
    return [tuple(block) for block in blocks.values()]


def _listed(name: str, way: Way, found: Instance, blocks: list[Block], dispatch: str, values: Mapping[str, int]) -> RunList:
    number = {run.name: index for index, run in enumerate(way.runs)}
    together = ([step for unit, _ in block for steps in found.arrays[unit].steps for step in steps] for block in blocks if len(block) > 1)
    packs = tuple(tuple(sorted(number[step] for step in steps)) for steps in together)
    runs = tuple(Run(way.steps[run.name].op, _members(way.steps[run.name], values)) for run in way.runs)
    return RunList(name, runs, packs, dispatch)


def _members(step: PlanStep, values: Mapping[str, int]) -> dict[str, int]:
    """The numbers of a step's members in a call. A bound that no value is given for goes as far as it can."""

    def number(binding: Binding) -> int:
        form = binding.expression
        if form.value in values:
            return form.at(values)
        extent = step.op.extents.get(binding.member)
        return form.at({form.value: 0}) if extent is None else int(getattr(step.op, extent.field))

    return {binding.member: number(binding) for binding in step.bindings}
