"""Steps and run lists on simulated time: what an operator takes by itself, and a list of them as one ELF or as a chain."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from iron_core.array.build import build
from iron_core.array.design import ArrayDesign, Design
from iron_core.array.fit import fit
from iron_core.array.joint import join
from iron_core.array.kernel import Kernel
from iron_core.array.words import number
from iron_core.backends.measuring import Platform, RunList
from iron_core.devices import Device, device
from iron_core.errors import IronError, UnsupportedError
from iron_sim.machine import Machine
from iron_sim.regions import regions_of, whole
from iron_sim.timing.cores import follows_data
from iron_sim.timing.events import timed
from iron_sim.timing.hardware import Hardware, hardware
from iron_sim.timing.load import load_us, switch_us


def platform(dev: Device | str) -> Platform:
    """The simulator with its table of hardware, by name and digest, for figures hold for that table alone."""
    dev = device(dev)
    table = sorted((name, quantity.value) for name, quantity in hardware(dev).quantities().items())
    return Platform(f"iron_sim {dev.name} {hashlib.sha256(repr(table).encode()).hexdigest()[:8]}", "simulated")


@attrs.frozen
class Step:
    """A run, timed. us: from the sequence's start to its end. load_us: of its array, beyond an entry's base. columns: that it covers.
    switch_us: what a chain takes to come to it from another array, its load among that. busiest: the core, the stream or the sequence that
    is busy longest, and for how long."""

    design: Design
    kernels: Mapping[str, Kernel]
    us: float
    load_us: float
    columns: int = 1
    switch_us: float = 0.0
    busiest: tuple[str, float] = ("", 0.0)

    @property
    def array(self) -> ArrayDesign:
        return self.design.array


def total_us(steps: Sequence[Step], runs: RunList, hw: Hardware, resets: bool = True) -> float:
    """A call of a run list: as one ELF, with the empty reset or without it, or step by step as a chain that is called again and again."""
    took = sum(step.us for step in steps)
    if runs.dispatch == "separate":
        if runs.packs:
            raise UnsupportedError(f"{runs.name}: packs of a chain; legal: dispatch='fused'.")
        switched = [b for a, b in zip((steps[-1], *steps), steps, strict=False) if a.array != b.array]
        return took + len(steps) * hw.chain_run.value + sum(one.switch_us for one in switched)
    if not hw.dispatch.value:
        raise UnsupportedError(f"{runs.name}: a full ELF on {hw.family}, which has none. Legal: dispatch='separate'.")
    for pack in runs.packs:
        joined([steps[index].array for index in pack], runs.name)
    packs = {index: number for number, pack in enumerate(runs.packs) for index in pack}
    # Of each run what is configured: a pack, or an array.
    places: list[Any] = [packs.get(index, step.array) for index, step in enumerate(steps)]
    entries = [place for n, place in enumerate(places) if n == 0 or place != places[n - 1]]
    loads = 0.0
    for place in entries:
        members = {step.array: step.load_us for step, at in zip(steps, places, strict=True) if at == place}
        loads += sum(members.values())
    reset = hw.reset.value if resets and len(entries) % 2 else 0.0
    return hw.dispatch.value + len(entries) * hw.entry_base.value + loads + took + reset


def joined(arrays: Sequence[ArrayDesign], what: str) -> None:
    """UnsupportedError where arrays do not fit their device together."""
    different = tuple(dict.fromkeys(arrays))
    try:
        if len(different) > 1:
            fit(join(different).array)
    except IronError as error:
        raise UnsupportedError(f"{what}: a pack of {', '.join(array.name for array in different)}: {error}") from error


def step(op: Any, dev: Device | str, members: Mapping[str, int] | None = None) -> Step:
    """An operator, timed by itself at these numbers of its per-call members. What `build()` and `fit()` raise where no array takes it."""
    members = dict(members or {})
    dev = device(dev)
    op = op.resolved(dev)
    design, kernels = build(op, dev, members)
    numbers = tuple(sorted((word.name, number(op, word, members)) for word in design.sequence.words))
    return _timed(_Same(design, kernels), numbers, _Reading(op, members))


@attrs.frozen
class _Same:
    """A design, by which it is known, and its kernels."""

    design: Design
    kernels: Mapping[str, Kernel] = attrs.field(eq=False)


@attrs.frozen(eq=False)
class _Reading:
    """An operator whose cores may follow data: what they read is that of its test's first draw."""

    op: Any
    members: Mapping[str, int]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reading)

    def __hash__(self) -> int:
        return 0

    def followed(self, design: Design, kernels: Mapping[str, Kernel], numbers: Mapping[str, int]) -> Mapping[str, Sequence[int]]:
        short = self.op.bounded(**self.op.limits(self.members)) if self.members else self.op
        drawn = type(self.op.base).test.draw(short, np.random.default_rng(0))
        given = {name: whole(self.op, name, tensor) for name, tensor in drawn.items()}
        machine = Machine(design.array, kernels, fit(design), follow=True)
        machine.run(design.sequence, regions_of(design, given), numbers)
        return {core.name: core.followed or () for core in machine.cores}


@functools.lru_cache(maxsize=4096)
def _timed(same: _Same, numbers: tuple[tuple[str, int], ...], reading: _Reading) -> Step:
    design, kernels = same.design, same.kernels
    hw = hardware(design.array.dev)
    followed = reading.followed(design, kernels, dict(numbers)) if any(follows_data(core.program) for core in design.array.cores) else {}
    run = timed(design, kernels, dict(numbers), followed=followed)
    placement, load = fit(design), load_us(design.array, kernels, hw)
    columns = len({column for column, _ in placement.values()})
    busiest = max(run.busy_us.items(), key=lambda item: item[1])
    return Step(design, kernels, run.us, load, columns, load + switch_us(design.array, placement, hw), busiest)
