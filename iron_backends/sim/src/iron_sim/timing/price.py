"""What a call of an image takes: the cost model of full ELFs, chains and contexts over estimates of their steps.

A full ELF takes its dispatch, its steps, and for every entry a base and the load of the entry's array; an odd number of entries ends
with one empty reset. Of an xclbin chain every step is a run, and one of another array than the step before it (the first: than the
last) switches to it. Contexts keep their arrays, so that a switch loads nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import attrs

from iron_core.array.build import kernels_of
from iron_core.array.design import ArrayDesign
from iron_core.array.kernel import Kernel
from iron_core.array.words import refuse
from iron_core.declare.affine import Affine
from iron_core.image.array_image import ArrayImage
from iron_core.image.array_step import ArrayStep
from iron_sim.timing.estimate import Estimate, estimate
from iron_sim.timing.hardware import hardware
from iron_sim.timing.load import load_us, switch_us


@attrs.frozen
class Price:
    """Microseconds of one call.

    image: "elf", "chain" or "contexts". steps: of each step by its name (of a chain or of contexts with its run's dispatch). bounds:
    which resource binds each, and parts: how long each resource is at work (see `Estimate`). entries: what each of the image's entries
    adds before its first step, and loads: how much of that is its array's load, estimated, as nothing has been compiled. dispatch_us:
    of the call, reset_us: of the empty reset. host_us: what a host program in Python adds, which is not in the total.
    """

    image: str
    dev: str
    values: Mapping[str, int]
    steps: Mapping[str, float]
    bounds: Mapping[str, str]
    parts: Mapping[str, Mapping[str, float]]
    entries: tuple[float, ...]
    loads: tuple[float, ...]
    dispatch_us: float
    reset_us: float
    host_us: float

    @property
    def total_us(self) -> float:
        """What the call takes."""
        return self.dispatch_us + sum(self.steps.values()) + sum(self.entries) + self.reset_us

    def step_us(self, name: str) -> float | None:
        """Of a step; None for one that is not run by itself."""
        return self.steps.get(name)

    #: What `rows` has in its columns.
    HEADERS: ClassVar = ("step", "us", "bound", "controller", "fabric", "streams", "cores", "fill")

    def rows(self) -> list[tuple[str, ...]]:
        """A table for people: what a call takes besides its steps, then its steps, the longest first."""
        others = {"dispatch": self.dispatch_us, "entries": sum(self.entries), "reset": self.reset_us, "total": self.total_us}
        found: list[tuple[str, ...]] = [(f"({name})", f"{us:.1f}", *[""] * 6) for name, us in others.items()]
        for name in sorted(self.steps, key=lambda one: -self.steps[one]):
            parts = tuple(f"{us:.1f}" for us in self.parts[name].values())
            found.append((name, f"{self.steps[name]:.1f}", self.bounds[name], *parts))
        return found

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {**attrs.asdict(self), "total_us": self.total_us}


def price(image: ArrayImage, values: Mapping[str, int] | None = None) -> Price:
    """What a call of an image takes with these per-call values; one that is left out is as large as it may be.

    BoundsError for values with which some array would have nothing to move, as a call with them has. UnsupportedError for a device whose
    hardware's timing is not known.
    """
    hw = hardware(image.dev)
    called = {**largest(image), **(values or {})}
    words = [parameter.form.at(called) for parameter in image.parameters]
    numbers: list[dict[str, int]] = [{} for _ in image.steps]
    for word, parameter in zip(words, image.parameters, strict=True):
        for index, name in parameter.uses:
            numbers[index][name] = word
            if parameter.kind == "length" and word < 1:
                _refuse(image.steps[index], name, word, called)
    known: dict[Any, Estimate] = {}
    found: dict[str, Estimate] = {}
    for step, given in zip(image.steps, numbers, strict=True):
        key = id(step.design), tuple(sorted(given.items()))  # equal designs are one object
        if key not in known:
            known[key] = estimate(step.design, _kernels(step, image.dev), step.placement, given)
        found[step.name] = known[key]
    bases, loads = entries(image)
    separate = not image.elf
    run = hw.chain_run.value if separate else 0.0
    dispatches = len(image.steps) if separate else 1
    return Price(
        "elf" if image.elf else "contexts" if image.contexts else "chain",
        image.dev,
        called,
        {name: one.us + run for name, one in found.items()},
        {name: one.bound for name, one in found.items()},
        {name: one.parts for name, one in found.items()},
        tuple(base + load for base, load in zip(bases, loads, strict=True)),
        loads,
        0.0 if separate else hw.dispatch.value,
        image.resets * hw.reset.value,
        dispatches * hw.host_run.value,
    )


def _refuse(step: ArrayStep, name: str, number: int, values: Mapping[str, int]) -> None:
    """BoundsError for a step's word, as a call has it."""
    word = next(word for word in step.design.sequence.words if word.name == name)
    followed = {one.expression.value: values[one.expression.value] for one in step.bindings if one.expression.value}
    refuse(step.operator, word, number, {one.member: one.expression.at(values) for one in step.bindings}, followed)


def entries(image: ArrayImage) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Of each entry what it takes before it loads, and its load."""
    hw = hardware(image.dev)
    known: dict[int, float] = {}

    def load(step: ArrayStep) -> float:
        array: ArrayDesign = step.design.array
        if id(array) not in known:
            known[id(array)] = load_us(array, _kernels(step, image.dev), hw)
        return known[id(array)]

    firsts = [image.steps[entry[0]] for entry in image.entries]
    if image.elf:
        return (hw.entry_base.value,) * len(firsts), tuple(map(load, firsts))
    switches = [step.design.array is not firsts[at - 1].design.array for at, step in enumerate(firsts)]
    bases = tuple(
        switch_us(step.design.array, step.placement, hw) if switch else 0.0 for switch, step in zip(switches, firsts, strict=True)
    )
    keeps = bool(image.contexts)
    return bases, tuple(load(step) if switch and not keeps else 0.0 for step, switch in zip(firsts, switches, strict=True))


def _kernels(step: ArrayStep, dev: str) -> Mapping[str, Kernel]:
    return kernels_of(step.configured, dev)


def largest(image: ArrayImage) -> dict[str, int]:
    """The largest number that each per-call value of a version may be: as its checks and its tensors' bounds have it, else as much as
    transfers move; 0 for one that nothing limits from above but by what it leaves of something else, for that is most where it is 0."""
    version = image.version
    most = [(check.expression, check.limit - check.extent) for check in version.checks]
    most += [(form, port.shape[axis]) for port in (*version.inputs, *version.outputs) for axis, form in port.bounds]
    least = [(form, 0) for form, _ in most]
    moved = []
    for word in image.parameters:
        if word.kind == "length":
            least.append((word.form, 1))
            moved.append((word.form, max(_whole(image.steps[index], name) for index, name in word.uses)))
    found = {}
    for value in version.values:
        rising, by_transfers, falling = (
            [_last(form, limit, above) for form, limit in forms if form.value == value.name and (form.scale < 0) == above]
            for forms, above in ((most, False), (moved, False), (least, True))
        )
        found[value.name] = min([min(rising or by_transfers, default=0), *falling])
    return found


def _whole(step: ArrayStep, name: str) -> int:
    """The number of a length's word with which its transfers move all that they may."""
    wholes = [1]
    for transfer in step.design.sequence.transfers():
        if transfer.length_by is not None and transfer.length_by.name == name:
            (descriptor,) = transfer.descriptors
            wholes.append(descriptor.size // descriptor.sizes[0] // transfer.unit)
    return max(wholes)


def _last(form: Affine, limit: int, above: bool) -> int:
    """The largest number, not negative, with which an expression is at most a limit, or where it is to be `above` at least that."""
    low, high = 0, 1 << 31
    while high - low > 1:
        middle = (low + high) // 2
        number = form.at({form.value: middle})
        low, high = (middle, high) if (number >= limit if above else number <= limit) else (low, middle)
    return low
