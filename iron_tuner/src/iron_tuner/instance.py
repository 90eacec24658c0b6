"""A version as a problem: its arrays are units, its steps arrivals, and costs are those of a table."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import attrs

from iron_core.array.joint import fit_joint
from iron_core.devices import Device
from iron_core.errors import IronError
from iron_core.image.packaging import CONTEXTS
from iron_core.image.packs import joint
from iron_tuner.cost_table import CostTable
from iron_tuner.designs import Design, Designs, Option
from iron_tuner.errors import CostError
from iron_tuner.fits import FITS, Fits
from iron_tuner.model import constants
from iron_tuner.problem import Block, Problem, Setting, Together, Unit
from iron_tuner.ways import Way


@attrs.frozen(eq=False)
class Choice:
    """An array at one setting: of each of its designs the option."""

    options: tuple[Option, ...]

    @property
    def array_key(self) -> Any:
        return self.options[0].variant.array_key


@attrs.frozen(eq=False)
class Array:
    """A unit: its designs, the first of which it is set by, and the names of their steps. choices: as its settings; none where the cost of
    a design is not known."""

    name: str
    designs: tuple[Design, ...] = ()
    steps: tuple[tuple[str, ...], ...] = ()
    choices: tuple[Choice, ...] = ()


@attrs.frozen(eq=False)
class Instance:
    """A version in one way of folding. problem: without what every call takes, `dispatch_us`. missing: labels of designs that nothing is
    known of, and why."""

    way: Way
    arrays: tuple[Array, ...]
    problem: Problem
    dispatch_us: float
    missing: tuple[tuple[str, str], ...]

    @property
    def keys(self) -> dict[str, bool]:
        """Its designs by cost key, and is their cost known?"""
        return {design.key: design.known for array in self.arrays for design in array.designs}


@attrs.frozen(eq=False)
class _Arrival:
    """A step where it runs. place: equal ones share an array. xclbin: of a chain. design: None of one that the image inserts."""

    step: str
    operator: str
    place: Any
    design: Design | None
    xclbin: int = 0


def instance(way: Way, designs: Designs) -> Instance:
    """The problem of a version as its image is. CostError where the table has no constants; UnsupportedError where it has no image."""
    own = _designs(way, designs)
    xclbin = {index: number for number, chain in enumerate(way.image.chains) for index in chain}
    steps = enumerate(way.image.steps)
    return _instance(way, designs, [_Arrival(s.name, s.operator, s.array_key, own.get(s.name), xclbin.get(i, 0)) for i, s in steps])


def sketch(way: Way, designs: Designs) -> Instance:
    """The same without the steps that an image inserts, and without making one: what ways of folding are compared by."""
    own = _designs(way, designs)
    places = ((run, own[run.name]) for run in way.runs)
    return _instance(way, designs, [_Arrival(run.name, one.operator, one.default.array_key, one) for run, one in places])


def _designs(way: Way, designs: Designs) -> dict[str, Design]:
    """The design of each step. Steps of one design hold what any of them does."""
    pinned: dict[Any, frozenset[str]] = {}
    for run in way.runs:
        pinned[run.identity] = pinned.get(run.identity, frozenset()) | run.pinned
    return {run.name: designs.of(run.identity, pinned[run.identity], lambda: way.steps[run.name]) for run in way.runs}


def _instance(way: Way, designs: Designs, arrivals: list[_Arrival]) -> Instance:
    table, kinds = designs.table, designs.kinds
    known = constants(table)
    numbers: dict[Any, int] = {}
    held: list[dict[Design, list[str]]] = []
    names: list[str] = []
    missing: dict[str, str] = {}
    inserted: set[int] = set()
    for one in arrivals:
        number = numbers.setdefault(one.place, len(numbers))
        if number == len(held):
            held.append({})
            names.append(one.operator)
        if one.design is None:
            missing[f"{one.step}: {one.operator}"] = "the image inserts it"
            inserted.add(number)
        else:
            held[number].setdefault(one.design, []).append(one.step)
    fused = table.dispatch == "fused"
    together = {key for cost in table.packs.values() for key in cost.t_step_us}
    arrays, units = [], []
    for number, name in enumerate(names):
        array = _array(name, held[number], together) if number not in inserted else Array(name)
        missing.update((design.label, design.why) for design in array.designs if not design.known)
        controls = any(option.variant.built.design.array.controls for choice in array.choices[:1] for option in choice.options)
        arrays.append(array)
        settings = tuple(_setting(array, choice) for choice in array.choices) or (Setting(0.0, 0.0),)
        units.append(Unit(name, settings, fused and kinds.packs and bool(array.choices) and not controls))
    order = tuple(numbers[one.place] for one in arrivals)
    places = [(one.xclbin, unit) for one, unit in zip(arrivals, order, strict=True)]
    entered = () if fused else _switches(places, len(units), stays=way.asked.packaging.image == CONTEXTS)
    blocks = _measured(table, designs, arrays) if fused else {}
    problem = Problem(tuple(units), order, known.base_us, known.reset_us, _channels(designs.dev), blocks, entered=entered)
    return Instance(way, tuple(arrays), problem, known.dispatch_us, tuple(missing.items()))


def _switches(places: list[tuple[int, int]], units: int, stays: bool) -> tuple[int, ...]:
    """Per unit, how often it is configured in a chain: where a step is of another array, or in another xclbin, than the step before, which
    of the first step is the last. Never where every array stays in a context of its own."""
    found = [0] * units
    for index, (_, unit) in enumerate(places):
        found[unit] += not stays and places[index] != places[index - 1]
    return tuple(found)


def _array(name: str, held: Mapping[Design, list[str]], together: Collection[str]) -> Array:
    """An array with what every one of its designs can be set to; settings that others beat in every way are left out, but for designs
    that were measured together with others."""
    designs = tuple(held)
    array = Array(name, designs, tuple(map(tuple, held.values())))
    if not all(design.known for design in designs):
        return array
    common = [at for at in designs[0].options if all(at in design.options for design in designs)]
    choices = [Choice(tuple(design.options[at] for design in designs)) for at in common]
    kept: list[Choice] = []
    made = [_setting(array, choice) for choice in choices]
    for number, setting in enumerate(made):
        beaten = (_beats(other, setting, earlier=at < number) for at, other in enumerate(made) if at != number)
        if number == 0 or choices[number].options[0].key in together or not any(beaten):
            kept.append(choices[number])
    return attrs.evolve(array, choices=tuple(kept))


def _beats(one: Setting, other: Setting, earlier: bool) -> bool:
    own = (one.steps_us, one.load_us, *one.channels)
    theirs = (other.steps_us, other.load_us, *other.channels)
    return all(a <= b for a, b in zip(own, theirs, strict=True)) and (own != theirs or earlier)


def _setting(array: Array, choice: Choice) -> Setting:
    steps = sum(len(names) * option.us for names, option in zip(array.steps, choice.options, strict=True))
    return Setting(steps, choice.options[0].load_us, choice.options[0].variant.channels)


def _channels(dev: Device) -> tuple[int, int]:
    assert dev.shim is not None
    return dev.columns * dev.shim.channels, dev.columns * dev.shim.channels


def _measured(table: CostTable, designs: Designs, arrays: list[Array]) -> dict[Block, Together]:
    """Blocks that the table has packs of: the first designs of their arrays, at these settings."""
    base = constants(table).base_us
    at: dict[str, list[tuple[int, int]]] = {}
    for unit, array in enumerate(arrays):
        for number, choice in enumerate(array.choices):
            at.setdefault(choice.options[0].key, []).append((unit, number))
    found: dict[Block, Together] = {}
    for cost in table.packs.values():
        members = [at[key][0] for key in cost.t_step_us if key in at]
        if len(members) != len(cost.t_step_us) or len({unit for unit, _ in members}) != len(members):
            continue
        try:
            entry = max(0.0, cost.pair_us - designs.loads[cost.beside] - base)
        except CostError:
            continue
        block = tuple(sorted(members))
        steps = (_together(arrays[unit], arrays[unit].choices[number], cost.t_step_us) for unit, number in block)
        found[block] = Together(entry, tuple(steps))
    return found


def _together(array: Array, choice: Choice, there: Mapping[str, float]) -> float:
    """An array's steps in a pack: as they were there, and by how much each counts as more than it takes."""
    each = ((len(names), option, there.get(option.key, option.own_us)) for names, option in zip(array.steps, choice.options, strict=True))
    return sum(count * (us + option.us - option.own_us) for count, option, us in each)


def fits_together(found: Instance, block: Block, fits: Fits, dev: Device) -> bool:
    """Does the placer take a pack, and every design of it there?"""
    options = [option for unit, number in block for option in found.arrays[unit].choices[number].options]
    try:
        together = joint([option.variant.array_key for option in options], dev)
        if fits.verdict(together.array) != FITS:
            return False
        for option in options:
            fit_joint(together.design(option.variant.built.design))
    except IronError:
        return False
    return True
